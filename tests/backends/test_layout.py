"""Where the backends of a machine lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.layout import PathTooLong, machine_places, places, run_dir


def test_backends_of_several_models_are_numbered_through() -> None:
    found = machine_places(Path("/run/c"), [("a", 2), ("elsewhere", 0), ("b", 1)])

    assert [place.name for place in found["a"]] == ["backend-0", "backend-1"]
    assert found["elsewhere"] == ()
    assert [(place.name, place.index, place.model) for place in found["b"]] == [("backend-2", 2, "b")]


def test_no_two_backends_share_a_file() -> None:
    found = places(Path("/run/c"), "m", 3)
    files = [
        path
        for place in found
        for path in (place.engine_socket, place.control_socket, place.log, place.scratch)
    ]

    assert len(set(files)) == len(files) == 12


def test_a_socket_path_that_unix_would_cut_off_is_refused_with_what_to_set() -> None:
    with pytest.raises(PathTooLong, match=r"Unix allows 107: set `run_dir`"):
        places(Path("/" + "x" * 100), "m", 1)


def test_the_longest_path_that_fits_is_taken() -> None:
    folder = Path("/" + "x" * (107 - len("//backend-0.sock")))

    (place,) = places(folder, "m", 1)

    assert len(str(place.engine_socket)) == 107


def test_two_gateways_of_one_user_have_folders_of_their_own() -> None:
    first = run_dir(None, 8000, uid=7, temporary=Path("/tmp"))
    second = run_dir(None, 8001, uid=7, temporary=Path("/tmp"))

    assert first == Path("/tmp/changeover-7/8000")
    assert first != second


def test_a_configured_folder_is_taken_as_it_is() -> None:
    assert run_dir("/run/c", 8000, uid=7, temporary=Path("/tmp")) == Path("/run/c")
