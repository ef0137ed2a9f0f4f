"""`changeover doctor` as a program: what it prints, and what its exit code means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from tests.drivers.valkey import valkey


def doctor(folder: Path, settings: dict[str, object]) -> tuple[int, dict[str, list[dict[str, str]]], str]:
    """Engines elsewhere, so that no other environment is looked at."""
    config = folder / "infer_config.yaml"
    config.write_bytes(msgspec.json.encode({"endpoints": ["http://127.0.0.1:1"], **settings}))
    command = [sys.executable, "-m", "gateway", "doctor", "--config", str(config), "--json"]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    return done.returncode, msgspec.json.decode(done.stdout), done.stderr.decode()


def test_a_sound_machine_ends_with_0(tmp_path: Path) -> None:
    with valkey() as server:
        code, said, errors = doctor(
            tmp_path,
            {
                "server": {"port": 0},
                "cache": {"type": "redis", "url": server.url},
                "checkpoints": {"store": str(tmp_path / "store")},
            },
        )
    assert (code, errors) == (0, ""), said
    topics = {finding["topic"].split()[0] for finding in said["findings"]}
    assert topics >= {"Python", "packages", "port", "disk", "Redis", "store"}


def test_what_does_not_work_ends_with_1_and_a_remedy(tmp_path: Path) -> None:
    code, said, _ = doctor(tmp_path, {"server": {"port": 0}, "cache": {"type": "redis", "port": 1}})
    assert code == 1
    (redis,) = [one for one in said["findings"] if one["level"] == "error"]
    assert redis["topic"].startswith("Redis")
    assert "cache.host" in redis["mend"]
