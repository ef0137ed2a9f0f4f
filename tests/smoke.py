"""`make smoke`: real engines, the whole surface, and one of the engines killed on the way.

Starts `changeover serve` with two engines of the built-in model and one of the tiny model with tensor
parallel 2, asks through /predict and the `openai` package, kills an engine with kill -9, asks on while it
comes back, and ends everything. Prints what it does; the last line tells the counts. Exit 0 only if
nothing failed.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import openai

from backends.contract import TOKEN_HEADER
from backends.rundir import read_token

ROOT = Path(__file__).resolve().parents[1]
BUILT_IN, TINY = "smollm2-135m-instruct", "tiny-llama"
START_LIMIT_S = 600
ASK_ON_S = 20.0

CONFIG = """
server: {{port: {port}, settle_s: 0}}
run_dir: {run_dir}
models:
  - {{name: {built_in}, engine: {{model: {built_in}, replicas: 2}}}}
  - {{name: {tiny}, engine: {{model: {tiny}, replicas: 1, tensor_parallel_size: 2}}}}
"""


def say(text: str) -> None:
    print(f"smoke: {text}", flush=True)


@dataclass
class Tally:
    """What was asked, and what went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    @contextmanager
    def one(self, kind: str) -> Iterator[None]:
        """Count one question of a kind, or its failure."""
        try:
            yield
        except Exception as error:  # whatever it was, the run goes on and ends with a failure
            self.failures.append(f"{kind}: {type(error).__name__}: {error}")
            say(f"FAILED {self.failures[-1]}")
        else:
            self.counts[kind] += 1


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise AssertionError(what)


def predict(client: httpx2.Client, **body: Any) -> dict[str, Any]:
    answer = client.post("/predict", json=body)
    expect(answer.status_code == 200, f"status {answer.status_code}: {answer.text[:300]}")
    decoded: dict[str, Any] = answer.json()
    return decoded


def ask_predict(client: httpx2.Client, tally: Tally) -> None:
    with tally.one("predict"):
        answer = predict(client, prompt="Hello, world!")
        expect(bool(answer["text"].strip()), "the answer is empty")
        say(f"'Hello, world!' -> {answer['text'].strip()[:90]!r}")
    with tally.one("predict"):
        answer = predict(client, prompt=["One, two,", "Red, green,"], max_tokens=8, temperature=0)
        expect([output["index"] for output in answer["outputs"]] == [0, 1], f"outputs: {answer}")
    with tally.one("predict"):
        question = {"role": "user", "content": "What is the capital of France?"}
        answer = predict(client, messages=[question], max_tokens=24, temperature=0)
        expect(bool(answer["text"].strip()), "the answer is empty")
        say(f"'What is the capital of France?' -> {answer['text'].strip()[:90]!r}")
    with (
        tally.one("stream"),
        client.stream(
            "POST", "/predict", json={"prompt": "Once upon a time", "max_tokens": 24, "stream": True}
        ) as answer_stream,
    ):
        lines = [line for line in answer_stream.iter_lines() if line.startswith("data: ")]
        expect(lines[-1] == "data: [DONE]", f"the stream ends with {lines[-1]!r}")
        usage = msgspec.json.decode(lines[-2].removeprefix("data: "))["usage"]
        expect(usage["completion_tokens"] == 24, f"usage: {usage}")


def ask_openai(url: str, tally: Tally) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    with tally.one("chat"):
        chat = client.chat.completions.create(
            model=BUILT_IN, messages=[{"role": "user", "content": "Say hello."}], max_tokens=12
        )
        expect(bool(chat.choices[0].message.content), f"no content: {chat}")
    with tally.one("stream"):
        pieces = client.chat.completions.create(
            model=BUILT_IN,
            messages=[{"role": "user", "content": "Count to five."}],
            max_tokens=16,
            stream=True,
        )
        text = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
        expect(bool(text.strip()), "the stream holds no text")
    with tally.one("predict"):
        completion = client.completions.create(
            model=BUILT_IN, prompt="The sky is", max_tokens=4, temperature=0
        )
        expect(bool(completion.choices[0].text), f"no text: {completion}")
    with tally.one("predict"):
        names = {model.id for model in client.models.list()}
        expect({BUILT_IN, TINY} <= names, f"models: {names}")
    with tally.one("tp2"):
        completion = client.completions.create(model=TINY, prompt="abc", max_tokens=4, temperature=0)
        expect(completion.usage is not None and completion.usage.completion_tokens == 4, f"{completion}")


def ask_on(client: httpx2.Client, tally: Tally, until: threading.Event) -> None:
    """Ask without a pause, one question after the other, until told to end."""
    while not until.is_set():
        with tally.one("predict"):
            predict(client, prompt="The weather is", max_tokens=4)


def kill_an_engine(run_dir: Path) -> int:
    """kill -9 the first engine. Returns its process id."""
    with httpx2.Client(
        transport=httpx2.HTTPTransport(uds=str(run_dir / "backend-0.ctl")),
        base_url="http://agent",
        headers={TOKEN_HEADER: read_token(run_dir)},
    ) as control:
        pid: int = control.get("/status").json()["pid"]
    os.kill(pid, signal.SIGKILL)
    return pid


def survive_a_kill(url: str, run_dir: Path, tally: Tally) -> None:
    """Four clients ask on while one of two engines dies and comes back."""
    until = threading.Event()
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        askers = [threading.Thread(target=ask_on, args=(client, tally, until)) for _ in range(4)]
        for asker in askers:
            asker.start()
        time.sleep(1)
        with tally.one("killed"):
            pid = kill_an_engine(run_dir)
            say(f"killed engine process {pid}; asking on")
        time.sleep(ASK_ON_S)
        until.set()
        for asker in askers:
            asker.join()


@contextmanager
def serving(config: Path, url: str) -> Iterator[None]:
    """`changeover serve`, until every model is ready; ended by SIGINT, which must leave exit status 0."""
    process = subprocess.Popen([sys.executable, "-m", "gateway", "serve", "--config", str(config)], cwd=ROOT)
    try:
        wait_ready(process, url)
        yield
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(120)
    expect(code == 0, f"`changeover serve` ended with {code}")


def wait_ready(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        expect(process.poll() is None, f"`changeover serve` ended with {process.returncode}")
        try:
            models = httpx2.get(f"{url}/readyz", trust_env=False).json()["models"]
            members = httpx2.get(f"{url}/status", trust_env=False).json()["models"]
        except httpx2.HTTPError:
            models, members = {}, []
        states = [member["state"] for model in members for member in model["members"]]
        if models and all(model["ready"] for model in models.values()) and set(states) == {"ready"}:
            return
        time.sleep(0.5)
    raise AssertionError(f"not ready within {START_LIMIT_S} s")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port


def main() -> int:
    tally = Tally()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
        run_dir = Path(folder) / "run"
        config = Path(folder) / "infer_config.yaml"
        config.write_text(CONFIG.format(port=port, run_dir=run_dir, built_in=BUILT_IN, tiny=TINY))
        try:
            with serving(config, url):
                with httpx2.Client(base_url=url, timeout=120, trust_env=False) as client:
                    ask_predict(client, tally)
                ask_openai(url, tally)
                survive_a_kill(url, run_dir, tally)
        except AssertionError as error:
            tally.failures.append(str(error))
            say(f"FAILED {error}")
    counts = {kind: tally.counts[kind] for kind in ("predict", "chat", "stream", "tp2", "killed")}
    words = " ".join(f"{kind}={count}" for kind, count in counts.items())
    whole = not tally.failures and all(counts.values())
    print(f"smoke: {'ok' if whole else 'FAILED'} {words} failed={len(tally.failures)}", flush=True)
    return 0 if whole else 1


if __name__ == "__main__":
    raise SystemExit(main())
