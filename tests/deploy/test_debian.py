"""Programs are unpacked from Debian's packages where they are missing, and only there."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
WANTED = {"tool-package": ("tool", "other")}


@pytest.fixture
def debian(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """deploy/debian.py, which is a script's module."""
    monkeypatch.syspath_prepend(str(ROOT / "deploy"))
    import debian

    return debian


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The only folder in which programs are found."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, code: str = "") -> None:
    file = folder / name
    file.write_text(f"#!{sys.executable}\nimport sys\nfrom pathlib import Path\n{code}\n")
    file.chmod(0o755)


def test_what_is_on_the_path_is_not_fetched(debian: ModuleType, path: Path, tmp_path: Path) -> None:
    program(path, "tool")
    program(path, "other")

    debian.unpack(WANTED, tmp_path / "tools")

    assert not (tmp_path / "tools").exists()


def test_what_is_missing_is_downloaded_and_unpacked(debian: ModuleType, path: Path, tmp_path: Path) -> None:
    program(path, "apt-get", "if sys.argv[1] == 'download': Path(f'{sys.argv[-1]}.deb').touch()")
    program(
        path,
        "dpkg-deb",
        "into = Path(sys.argv[3], 'usr', 'bin'); into.mkdir(parents=True)\n(into / 'tool').touch()",
    )

    debian.unpack(WANTED, tmp_path / "tools")

    assert (tmp_path / "tools" / "usr" / "bin" / "tool").exists()
    assert not (tmp_path / "tools" / "downloads").exists()


def test_where_there_is_no_apt_it_says_what_to_do(debian: ModuleType, path: Path, tmp_path: Path) -> None:
    with pytest.raises(debian.SetupFailed, match="lacks tool-package: put their programs on PATH"):
        debian.unpack(WANTED, tmp_path / "tools")


def test_what_apt_says_is_shown(debian: ModuleType, path: Path, tmp_path: Path) -> None:
    program(path, "apt-get", "sys.exit('no such package' if sys.argv[1] == 'download' else 0)")
    program(path, "dpkg-deb")

    with pytest.raises(debian.SetupFailed, match="no such package"):
        debian.unpack(WANTED, tmp_path / "tools")
