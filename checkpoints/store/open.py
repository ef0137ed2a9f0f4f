"""Opens a store by URL and lists the models in it.

A path or `file:///path`; `s3://bucket/prefix` (needs the extra `s3`; endpoint and keys come from the
usual AWS variables); `webhdfs://host:port/path` (`webhdfs+https://` for TLS). Each model has a folder
of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checkpoints.errors import StoreError
from checkpoints.manifest import Manifest, check_name
from checkpoints.store.contract import Files
from checkpoints.store.local import LocalFiles
from checkpoints.store.store import Store


def open_store(url: str, model: str, *, check: Callable[[Manifest], None] | None = None) -> Store:
    """One model's store; nothing is made before something is published.

    Raises:
        ManifestError: the model's name is not safe.
        StoreError: the URL is not understood, or the package for it is not installed.
    """
    return Store(open_files(url, check_name("model", model)), model, check=check)


def models(url: str) -> list[str]:
    """The models that have a folder in the store."""
    return [name for name in open_files(url, "").names("") if not name.startswith(".")]


def open_files(url: str, below: str) -> Files:
    """The storage at `url`, from the folder `below` on."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalFiles(Path(url).expanduser() / below)
    if scheme == "file":
        return LocalFiles(Path(rest) / below)
    if scheme in ("s3", "s3a"):
        return _open_s3(rest, below)
    if scheme in ("webhdfs", "webhdfs+https"):
        from checkpoints.store.webhdfs import open_webhdfs

        return open_webhdfs(rest, below, secure=scheme.endswith("https"))
    raise StoreError(
        f"{url}: stores are folders, s3:// or webhdfs:// (hdfs:// is reached by its WebHDFS port)"
    )


def _open_s3(location: str, below: str) -> Files:
    try:
        from checkpoints.store.s3 import open_s3
    except ModuleNotFoundError as error:
        raise StoreError(f"s3:// stores need {error.name}: pip install 'changeover[s3]'") from error
    return open_s3(location, below)
