from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from backends.vllm.start import ARCH_PRCTL, XTILEDATA, allow_tiles

ARCH_GET_XCOMP_PERM = 0x1022


def permitted() -> int:
    """The extended states that this process may use, as bits."""
    bits = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(ARCH_PRCTL, ARCH_GET_XCOMP_PERM, ctypes.byref(bits))
    return bits.value


def test_a_process_may_use_tiles_once_it_has_asked() -> None:
    allow_tiles()
    if "amx_tile" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this processor has no tiles; asking did no harm")
    assert permitted() >> XTILEDATA & 1
