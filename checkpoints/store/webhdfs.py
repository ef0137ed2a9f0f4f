"""A store in HDFS, over WebHDFS (Hadoop's REST API) with plain HTTP.

Creation is exclusive in the name node (`CREATE` with `overwrite=false`), but a file is visible while
it is written; so small files are written aside and renamed, and a rename onto an existing name fails.
Data is streamed to the data node that the name node redirects to. Simple authentication
(`user.name`) or whatever a gateway (Knox, HttpFS) in front asks for as basic authentication.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import httpx2
import msgspec

from checkpoints.digest import OnBytes
from checkpoints.errors import NotFoundError, StoreError
from checkpoints.manifest import FileEntry
from checkpoints.store.contract import MAX_SMALL_BYTES
from checkpoints.store.objects import ORPHAN_AGE_S, ObjectStaging, save

_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
_ASIDE = "aside"


class _Status(msgspec.Struct):
    path: str = msgspec.field(name="pathSuffix")
    modified_ms: int = msgspec.field(name="modificationTime")
    length: int = 0


class _Statuses(msgspec.Struct):
    entries: list[_Status] = msgspec.field(name="FileStatus")


class _Listing(msgspec.Struct):
    statuses: _Statuses = msgspec.field(name="FileStatuses")


class _Answer(msgspec.Struct):
    boolean: bool


def open_webhdfs(location: str, below: str, *, secure: bool = False) -> WebHdfsFiles:
    """The folder of `[user@]host:port/path`."""
    authority, _, path = location.partition("/")
    user, _, host = authority.rpartition("@")
    root = "/" + "/".join(part for part in (path.strip("/"), below) if part)
    return WebHdfsFiles(f"{'https' if secure else 'http'}://{host}", root, user or None)


class WebHdfsFiles:
    """Implements `Files`; close() ends its connections."""

    def __init__(self, base: str, root: str, user: str | None) -> None:
        self._url = f"{base}/webhdfs/v1"
        self._root = root.rstrip("/")
        self._user = {"user.name": user} if user else {}
        self._http = httpx2.Client(timeout=_TIMEOUT, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def names(self, folder: str) -> list[str]:
        """See `Files`."""
        return sorted(entry.path for entry in self._list(folder))

    def read(self, path: str) -> bytes | None:
        """See `Files`."""
        try:
            with self._open(path) as chunks:
                data = b""
                for chunk in chunks:
                    data += chunk
                    if len(data) > MAX_SMALL_BYTES:
                        raise StoreError(f"{path}: more than {MAX_SMALL_BYTES} bytes")
                return data
        except NotFoundError:
            return None

    def create(self, path: str, data: bytes) -> bool:
        """See `Files`."""
        folder, _, _ = path.rpartition("/")
        self._ask("PUT", folder, op="MKDIRS")
        aside = f"{_ASIDE}/{uuid.uuid4().hex}"
        self.write(aside, iter([data]))
        answer = self._ask("PUT", aside, op="RENAME", destination=f"{self._root}/{path}")
        if msgspec.json.decode(answer.content, type=_Answer).boolean:
            return True
        self.remove(aside)
        return False

    def remove(self, path: str) -> None:
        """See `Files`."""
        self._ask("DELETE", path, op="DELETE", recursive="true")

    def write(self, path: str, chunks: Iterator[bytes]) -> None:
        """See `Objects`: two steps, as the protocol wants: ask the name node, send to the data node."""
        with _translated(f"cannot write {path}"):
            first = self._http.put(self._address(path, op="CREATE", overwrite="false"))
            if first.status_code not in (307, 201):
                raise _refused(path, first)
            second = self._http.put(
                first.headers["location"],
                content=chunks,
                headers={"content-type": "application/octet-stream"},
            )
            if second.status_code != 201:
                raise _refused(path, second)

    def stage(self) -> ObjectStaging:
        """See `Files`."""
        return ObjectStaging(self)

    def fetch(self, path: str, target: Path, on_bytes: OnBytes | None) -> FileEntry:
        """See `Files`."""
        with self._open(path) as chunks:
            return save(path, target, chunks, on_bytes)

    def local(self, path: str) -> Path | None:
        """See `Files`."""
        return None

    def sweep(self, named: Callable[[], set[str]]) -> list[str]:
        """See `Files`: data that no manifest names and that is older than a day."""
        before_ms = (datetime.now(UTC).timestamp() - ORPHAN_AGE_S) * 1000
        old = {f"data/{entry.path}" for entry in self._list("data") if entry.modified_ms < before_ms}
        orphans = sorted(old - named()) if old else []
        aside = [f"{_ASIDE}/{entry.path}" for entry in self._list(_ASIDE) if entry.modified_ms < before_ms]
        for place in [*orphans, *aside]:
            self.remove(place)
        return orphans

    def _list(self, folder: str) -> list[_Status]:
        try:
            answer = self._ask("GET", folder, op="LISTSTATUS")
        except NotFoundError:
            return []
        return msgspec.json.decode(answer.content, type=_Listing).statuses.entries

    @contextmanager
    def _open(self, path: str) -> Iterator[Iterator[bytes]]:
        with _translated(f"cannot read {path}"):
            first = self._http.get(self._address(path, op="OPEN"))
            if first.status_code != 307:
                raise _refused(path, first)
            with self._http.stream("GET", first.headers["location"]) as answer:
                if answer.status_code != 200:
                    answer.read()
                    raise _refused(path, answer)
                yield answer.iter_bytes()

    def _ask(self, method: str, path: str, **query: str) -> httpx2.Response:
        with _translated(f"{query['op']} {path}"):
            answer = self._http.request(method, self._address(path, **query))
            if answer.status_code != 200:
                raise _refused(path, answer)
            return answer

    def _address(self, path: str, **query: str) -> httpx2.URL:
        full = f"{self._root}/{path}".rstrip("/")
        return httpx2.URL(self._url + quote(full), params={**query, **self._user})


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except httpx2.HTTPError as error:
        raise StoreError(f"{what}: HDFS cannot be reached: {error}") from error
    except (msgspec.DecodeError, KeyError) as error:
        raise StoreError(f"{what}: HDFS answered something that is not WebHDFS: {error}") from error


class _Remote(msgspec.Struct):
    exception: str = ""
    message: str = ""


class _RemoteException(msgspec.Struct):
    remote: _Remote = msgspec.field(name="RemoteException", default_factory=_Remote)


def _refused(path: str, answer: httpx2.Response) -> StoreError:
    try:
        remote = msgspec.json.decode(answer.content, type=_RemoteException).remote
    except msgspec.DecodeError:
        remote = _Remote(message=answer.text[:200])
    if answer.status_code == 404 or remote.exception == "FileNotFoundException":
        return NotFoundError(f"{path}: not in the store")
    return StoreError(
        f"{path}: HDFS answered {answer.status_code} {remote.exception}: {remote.message[:200]}"
    )
