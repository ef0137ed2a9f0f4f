"""A small WebHDFS name node and data node on a real socket, after Hadoop's WebHDFS REST API.

Keeps to what clients rely on: CREATE and OPEN redirect to the data node with 307, CREATE without
overwrite answers 403 FileAlreadyExistsException, RENAME onto an existing file answers false, a
missing path 404 FileNotFoundException. Not Hadoop: no cluster is to be had here.
"""

from __future__ import annotations

import posixpath
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

PREFIX = "/webhdfs/v1"


class NameSpace:
    """Files by path; folders are implied and kept."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.folders: set[str] = {"/"}
        self.lock = threading.Lock()
        self.asked: list[str] = []

    def make_folders(self, path: str) -> None:
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)

    def children(self, folder: str) -> dict[str, str]:
        prefix = folder.rstrip("/") + "/"
        found = {
            path[len(prefix) :].split("/")[0]: "DIRECTORY" for path in self.folders if path.startswith(prefix)
        }
        for path in self.files:
            if path.startswith(prefix):
                name, _, below = path[len(prefix) :].partition("/")
                found[name] = "DIRECTORY" if below else "FILE"
        found.pop("", None)
        return found


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebHdfs

    def _parse(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.server.space.asked.append(f"{self.command} {query.get('op', '')}")
        return unquote(parts.path.removeprefix(PREFIX)) or "/", query

    def do_GET(self) -> None:
        path, query = self._parse()
        space = self.server.space
        with space.lock:
            if query["op"] == "LISTSTATUS" and (path in space.folders or path in space.files):
                statuses = [
                    {
                        "pathSuffix": name,
                        "type": kind,
                        "length": 0,
                        "modificationTime": self._time(path, name),
                    }
                    for name, kind in space.children(path).items()
                ]
                self._json(200, {"FileStatuses": {"FileStatus": statuses}})
            elif query["op"] == "OPEN" and path in space.files:
                if "datanode" not in query:
                    self._redirect()
                else:
                    self._answer(200, space.files[path], "application/octet-stream")
            else:
                self._fail(404, "FileNotFoundException", f"File {path} does not exist.")

    def do_PUT(self) -> None:
        path, query = self._parse()
        space = self.server.space
        body = self._body()
        with space.lock:
            if query["op"] == "MKDIRS":
                space.make_folders(path)
                self._json(200, {"boolean": True})
            elif query["op"] == "CREATE":
                if path in space.files and query.get("overwrite") != "true":
                    self._fail(403, "FileAlreadyExistsException", f"{path} already exists")
                elif "datanode" not in query:
                    self._redirect()
                else:
                    self._store(path, body)
                    self._answer(201, b"", "text/plain")
            elif query["op"] == "RENAME":
                target = query["destination"]
                can = (
                    path in space.files
                    and target not in space.files
                    and posixpath.dirname(target) in space.folders
                )
                if can:
                    self._store(target, space.files.pop(path))
                self._json(200, {"boolean": can})

    def do_DELETE(self) -> None:
        path, _ = self._parse()
        space = self.server.space
        with space.lock:
            gone = [name for name in space.files if name == path or name.startswith(path + "/")]
            for name in gone:
                del space.files[name]
            space.folders -= {name for name in space.folders if name == path or name.startswith(path + "/")}
            self._json(200, {"boolean": bool(gone)})

    def _store(self, path: str, data: bytes) -> None:
        self.server.space.files[path] = data
        self.server.space.times[path] = time.monotonic_ns()
        self.server.space.make_folders(posixpath.dirname(path))

    def _time(self, folder: str, name: str) -> int:
        return 0 if name in self.server.old else time.time_ns() // 1_000_000

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("transfer-encoding", ""):
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data

    def _redirect(self) -> None:
        self.send_response(307)
        self.send_header("location", f"{self.server.url}{self.path}&datanode=1")
        self.send_header("content-length", "0")
        self.end_headers()

    def _fail(self, status: int, exception: str, message: str) -> None:
        self._json(status, {"RemoteException": {"exception": exception, "message": message}})

    def _json(self, status: int, value: object) -> None:
        self._answer(status, msgspec.json.encode(value), "application/json")

    def _answer(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class WebHdfs(ThreadingHTTPServer):
    """Serves until the block ends; names in `old` were modified long ago."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.space = NameSpace()
        self.old: set[str] = set()
        self.address = f"127.0.0.1:{self.server_port}"
        self.url = f"http://{self.address}"


@contextmanager
def running_webhdfs() -> Iterator[WebHdfs]:
    """A running server."""
    server = WebHdfs()
    thread = threading.Thread(target=server.serve_forever, name="webhdfs")
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
