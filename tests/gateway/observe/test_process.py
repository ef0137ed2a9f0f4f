from __future__ import annotations

import os
import subprocess
import sys

from gateway.observe import process


def test_this_process_has_figures() -> None:
    found = process.figures(os.getpid(), process.boot_unix_s())
    assert found is not None
    assert found.resident_bytes > 1_000_000
    assert found.open_files > 0
    assert found.threads >= 1
    assert found.cpu_s > 0


def test_a_process_that_ended_has_none_even_before_it_is_reaped() -> None:
    with subprocess.Popen([sys.executable, "-c", "pass"], stdout=subprocess.PIPE) as ended:
        assert ended.stdout is not None
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert process.start_ticks(ended.pid) is None
        assert process.figures(ended.pid, 0.0) is None
    assert process.start_ticks(ended.pid) is None
