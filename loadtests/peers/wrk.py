"""wrk as the generator of plain requests: the command, its script, and what it prints. Pure but for `run`."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}
OVERTIME_S = 30.0
"""wrk ends by itself; this long after it should have, something is wrong."""


@dataclass(frozen=True, slots=True)
class Load:
    """What wrk saw."""

    requests: int
    per_s: float
    p50_s: float
    p99_s: float
    failed: int
    """Answers other than 2xx and 3xx, and broken connections."""


class WrkFailed(RuntimeError):
    """wrk printed something else."""


def script(folder: Path, name: str, body: str, *, different: int | None = None) -> Path:
    """A Lua file that posts `body`.

    `different`: NUMBER in it becomes one of so many numbers in turn; 0: another one each time, in every run.
    """
    lines = [
        'wrk.method = "POST"',
        'wrk.headers["Content-Type"] = "application/json"',
        f"wrk.body = [[{body}]]",
    ]
    if different is not None:
        lines += [
            "local count, first, last = 0, wrk.body:match('^(.*)NUMBER(.*)$')",
            "math.randomseed(os.time())",
            f"local run = {'0' if different else 'math.random(1, 1000000000)'}",
            "request = function()",
            f"  count = {f'(count + 1) % {different}' if different else 'count + 1'}",
            "  return wrk.format(nil, nil, nil, first .. run .. '-' .. count .. last)",
            "end",
        ]
    path = folder / f"{name}.lua"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(url: str, lua: Path, *, connections: int, seconds: float, core: int | None = None) -> Load:
    """One thread, that many connections. Raises WrkFailed."""
    pin = ["taskset", "-c", str(core)] if core is not None else []
    wrk = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--latency", "--timeout", "20s"]
    try:
        done = subprocess.run(
            [*pin, *wrk, "-s", str(lua), url],
            capture_output=True,
            text=True,
            timeout=seconds + OVERTIME_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise WrkFailed(f"wrk did not end within {OVERTIME_S:g} s of its time") from error
    return parse(done.stdout + done.stderr)


def parse(text: str) -> Load:
    """What wrk prints with --latency. Raises WrkFailed."""
    requests = re.search(r"(\d+) requests in", text)
    per_s = re.search(r"Requests/sec:\s+([\d.]+)", text)
    p50, p99 = (re.search(rf"\s{share}%\s+([\d.]+)(us|ms|s|m)\b", text) for share in (50, 99))
    if requests is None or per_s is None or p50 is None or p99 is None:
        raise WrkFailed(f"wrk said: {text.strip()[-200:]}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    failed = int(bad[1]) if bad else 0
    failed += sum(map(int, broken.groups())) if broken else 0
    return Load(
        requests=int(requests[1]),
        per_s=float(per_s[1]),
        p50_s=float(p50[1]) * _UNITS[p50[2]],
        p99_s=float(p99[1]) * _UNITS[p99[2]],
        failed=failed,
    )
