"""Where data comes from: a file, a folder, S3, HDFS, or the built-in corpus; always ends as local files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkpoints.errors import CheckpointError
from checkpoints.store.contract import Files
from checkpoints.store.open import open_files
from training.data.corpus import BUILTIN_PREFIX, write_corpus
from training.data.errors import DataError
from training.data.formats import KNOWN, suffix_of

Report = Callable[[str], None]
MAX_FILES = 100_000
"""In one folder; more is not a data set but a mistaken path."""


def local_files(location: str, downloads: Path, report: Report) -> list[Path]:
    """The files to read, sorted by name; what is far away is fetched into `downloads`, once.

    Raises DataError if nothing of a known format is there.
    """
    if location.startswith(BUILTIN_PREFIX):
        return [write_corpus(location, downloads)]
    if "://" in location and not location.startswith("file://"):
        return _fetch(location, downloads, report)
    path = Path(location.removeprefix("file://")).expanduser()
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise DataError(f"data.path: {location}: there is no such file or folder")
    found = sorted(each for each in path.rglob("*") if each.is_file() and not _hidden(each, path))
    known = [each for each in found if suffix_of(each.name) is not None]
    if not known:
        raise DataError(f"data.path: {location}: holds no file of a known format ({', '.join(KNOWN)})")
    _refuse_too_many(location, len(known))
    return known


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(root).parts)


def _refuse_too_many(location: str, count: int) -> None:
    if count > MAX_FILES:
        raise DataError(f"data.path: {location}: holds {count} files; join them to fewer than {MAX_FILES}")


def _fetch(location: str, downloads: Path, report: Report) -> list[Path]:
    url = location.rstrip("/")
    parent, _, last = url.rpartition("/")
    single = suffix_of(last) is not None
    folder = parent if single else url
    try:
        with _opened(folder) as files:
            names = [last] if single else [name for name in files.names("") if suffix_of(name) is not None]
            if not names:
                raise DataError(
                    f"data.path: {location}: holds no file of a known format ({', '.join(KNOWN)})"
                )
            _refuse_too_many(location, len(names))
            return [_fetch_one(files, name, downloads, f"{folder}/{name}", report) for name in names]
    except CheckpointError as error:
        raise DataError(f"data.path: {location}: {error}") from error


@contextmanager
def _opened(url: str) -> Iterator[Files]:
    """The storage, whose connections end with the context."""
    files = open_files(url, "")
    try:
        yield files
    finally:
        from checkpoints.store.webhdfs import WebHdfsFiles  # needs httpx2, which a local run may lack

        if isinstance(files, WebHdfsFiles):
            files.close()


def _fetch_one(files: Files, name: str, downloads: Path, url: str, report: Report) -> Path:
    """Whole or not at all: what an interrupted run left under another name is fetched again."""
    target = downloads / name
    if target.exists():
        return target
    report(f"fetching {url}")
    partial = downloads / f".{name}.partial"
    files.fetch(name, partial, None)
    partial.rename(target)
    return target
