"""One stock vLLM on a port of its own, with the developer endpoints that swapping needs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO

import msgspec

_START_S = 300.0


class Engine:
    """Starts on entry, ends on exit, and everything it started with it."""

    def __init__(self, environment: Path, model: Path, log: Path, *options: str) -> None:
        self._command = [
            str(environment / "bin" / "vllm"), "serve", str(model), "--served-model-name", "probed",
            "--host", "127.0.0.1", "--enforce-eager", "--max-model-len", "1024", "--max-num-seqs", "16",
            "--kv-cache-memory-bytes", "300000000", *options,
        ]  # fmt: skip
        self._log = log
        self._output: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Engine:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        variables = {
            **os.environ,  # noqa: TID251 - the engine needs the caller's
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        self._output = self._log.open("wb")
        self._process = subprocess.Popen(
            [*self._command, "--port", str(port)],
            env=variables, stdout=self._output, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(self._process.pid, number)
                    self._process.wait(20)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    continue
        if self._output is not None:
            self._output.close()

    def swap(self, folder: Path, *, right: bool = True) -> None:
        """Load weights in place; not `right`: forget to reset the prefix cache."""
        if right:
            self.post("/pause?mode=wait")
        self.post(
            "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(folder.resolve())}}
        )
        if right:
            if b"true" not in self.post("/reset_prefix_cache"):
                raise SystemExit("the engine did not reset its prefix cache")
            self.post("/resume")

    def post(self, path: str, body: object = None) -> bytes:
        """The answer's body; anything but 200 ends the caller."""
        data = msgspec.json.encode(body) if body is not None else b""
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            found: bytes = answer.read()
            return found

    def _wait(self) -> None:
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._process is not None and self._process.poll() is not None:
                raise SystemExit(f"the engine ended: see {self._log}\n{self._log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise SystemExit(f"the engine was not ready after {_START_S:g} s: see {self._log}")
