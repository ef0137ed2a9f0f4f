"""What every process of an engine does first: a vLLM plugin (`vllm.general_plugins` in pyproject.toml).

vLLM's CPU attention uses the processor's AMX tiles for short prompts without asking the kernel, which then
ends the whole engine with SIGILL at its first such request (seen with vLLM 0.32 and a first prompt of three
tokens). The permission holds for the process that asked; vLLM loads its plugins in each.
Source: Linux, Documentation/arch/x86/xstate.rst.
"""

from __future__ import annotations

import ctypes
import platform
import sys

ARCH_PRCTL = 158
"""The system call on x86-64."""
ARCH_REQ_XCOMP_PERM = 0x1023
XTILEDATA = 18


def allow_tiles() -> None:
    """Ask for the tile registers. Does nothing where there are none, or where it is not needed."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return
    ctypes.CDLL(None, use_errno=True).syscall(ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XTILEDATA)
