"""Makes the private folder of `backends.layout` and keeps the token in it. All I/O on that folder is here."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from pathlib import Path

from backends import layout


class NotPrivate(RuntimeError):
    """The folder belongs to someone else or is open to others; nothing is put there."""


def default_run_dir(configured: str | None, port: int) -> Path:
    """`layout.run_dir` for the user and the temporary folder of this process."""
    return layout.run_dir(configured, port, uid=os.getuid(), temporary=Path(tempfile.gettempdir()))


def prepare(run_dir: Path) -> str:
    """Make the folder (0700) and its token (0600) unless they are there.

    Returns the token. Raises NotPrivate.
    """
    for folder in (run_dir.parent, run_dir) if run_dir.parent.name.startswith("changeover-") else (run_dir,):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(folder)
    path = layout.token_file(run_dir)
    fresh = path.with_name(f".token-{os.getpid()}-{secrets.token_hex(4)}")
    fresh.touch(mode=0o600)
    fresh.write_text(secrets.token_urlsafe(32))
    try:
        # Of several processes that start at once exactly one creates the link; all read the same token.
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return read_token(run_dir)


def read_token(run_dir: Path) -> str:
    """Raises FileNotFoundError where no backend was ever started, NotPrivate where others could read it."""
    path = layout.token_file(run_dir)
    _check_private(path)
    return path.read_text().strip()


def _check_private(path: Path) -> None:
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise NotPrivate(
            f"{path} must belong to you alone (0700 for folders, 0600 for files), but is "
            f"{stat.filemode(found.st_mode)} of user {found.st_uid}: remove it, or set another `run_dir`"
        )
