"""Stands in for the executable `vllm`: the real guard, under uvicorn, on the socket that it is told.

Starts in half a second instead of half a minute, so that keepers, swaps and `changeover serve` can be tested
as whole processes. What it does besides is told by its environment:

    STAND_IN_EXIT=text    prints the text and ends with 1 instead of starting
    STAND_IN_DEAF=1       starts, but /health never answers 200
    STAND_IN_FAULTS=file  JSON {path: "fails" | "hangs" | "half" | "dies" | "lies"}: what the next request for
                          that path meets; taken out of the file when it does ("always fails" stays).
                          "PATH after load": once new weights were loaded; "start": the next launch

It has weights (a checksum of what it was launched with or has loaded), a prefix cache that goes stale unless
it is reset, a pause, and adapters. A text of `/v1/completions` is the weights that computed it: JSON answers
with it, one character a token; a body that is the path of a file streams a piece at once and the rest when
that file exists.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
import uvicorn

from backends.vllm.guard import Guard

LOGPROBS = 256


def weights_of(folder: Path) -> str:
    """A name of the numbers that lie there; raises if there are none."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise FileNotFoundError(f"no weights in {folder}")
    checksum = 0
    for file in files:
        checksum = zlib.crc32(file.read_bytes(), checksum)
    return f"{checksum:08x}"


class Engine:
    """What vLLM does of which a swap takes notice."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.weights = weights_of(folder) if any(folder.glob("*.safetensors")) else "none"
        self.label = ""
        self.adapters: dict[str, str] = {}
        self.cache: dict[str, str] = {}
        """Prompt to the weights that computed its prefix."""
        self.running = 0
        self.loads = 0
        self.going = asyncio.Event()
        self.going.set()
        self.faults = os.getenv("STAND_IN_FAULTS")  # noqa: TID251 (told by its environment)
        self.paths: dict[str, Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]] = {
            "/pause": self.pause,
            "/resume": self.resume,
            "/collective_rpc": self.load,
            "/reset_prefix_cache": self.reset,
            "/reset_mm_cache": self.nothing,
            "/reset_encoder_cache": self.nothing,
            "/update_weight_version": self.relabel,
            "/v1/load_lora_adapter": self.add,
            "/v1/unload_lora_adapter": self.drop,
            "/v1/models": self.models,
            "/v1/completions": self.complete,
            "/tokenize": self.nothing,
        }

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        if path == "/health":
            await answer(send, 503 if os.getenv("STAND_IN_DEAF") else 200, {})  # noqa: TID251
            return
        body = await whole(receive)
        fault = take_fault(self.faults, path, *([f"{path} after load"] if self.loads else []))
        if fault == "dies":
            os._exit(1)
        if fault == "hangs":
            await asyncio.Event().wait()
        if fault == "half":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
            await send({"type": "http.response.body", "body": b"{", "more_body": True})
            raise ConnectionError("half an answer")
        if fault == "fails":
            await answer(send, 500, {"error": {"message": "told to fail"}})
        elif path == "/v1/completions" and not body.startswith(b"{"):
            await self.stream(body, send)
        else:
            content = msgspec.json.decode(body) if body else {}
            query = scope["query_string"].decode()
            work = self.paths[path]({**content, "query": query, "lies": fault == "lies"})
            await answer(send, 200, await work)

    async def stream(self, body: bytes, send: Any) -> None:
        """A piece now, the rest when the file named by the body exists."""
        await self.going.wait()
        self.running += 1
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
            )
            if body:
                await send({"type": "http.response.body", "body": b"begun ", "more_body": True})
                while not Path(body.decode()).exists():  # noqa: ASYNC110 (another process makes it)
                    await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": b"done"})
        finally:
            self.running -= 1

    async def complete(self, asked: dict[str, Any]) -> Any:
        await self.going.wait()
        self.running += 1
        try:
            await asyncio.sleep(0)
            prompt = str(asked.get("prompt"))
            model = asked.get("model") or ""
            weights = self.adapters.get(model, self.weights)
            part = f"{model if model in self.adapters else ''}/{asked.get('cache_salt')}"
            prefix = self.cache.setdefault(f"{part}/{prompt}", weights)
            text = weights if prefix == weights else f"{weights} on {prefix}"
            choice: dict[str, Any] = {"index": 0, "text": text, "finish_reason": "length"}
            if asked.get("prompt_logprobs") is not None:
                choice["prompt_logprobs"] = [None, *logprobs(weights, asked["prompt"])]
            elif asked.get("logprobs") is not None:
                choice["logprobs"] = generated(prefix, asked["max_tokens"])
            return {"model": asked.get("model"), "choices": [choice]}
        finally:
            self.running -= 1

    async def models(self, _: dict[str, Any]) -> Any:
        return {"data": [{"id": name, "max_model_len": 600} for name in (self.name, *self.adapters)]}

    async def pause(self, asked: dict[str, Any]) -> Any:
        self.going.clear()
        while self.running and asked["query"] == "mode=wait":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return {"status": "paused"}

    async def resume(self, _: dict[str, Any]) -> Any:
        self.going.set()
        return {"status": "resumed"}

    async def load(self, asked: dict[str, Any]) -> Any:
        self.loads += 1
        if asked["lies"]:
            return {"results": [None]}
        try:
            self.weights = weights_of(Path(asked["kwargs"]["weights_path"]))
        except OSError:
            os._exit(1)  # as vLLM does
        return {"results": [None]}

    async def reset(self, asked: dict[str, Any]) -> Any:
        if asked["lies"]:
            return {"success": False}
        self.cache.clear()
        return {"success": True}

    async def relabel(self, asked: dict[str, Any]) -> Any:
        self.label = asked["new_version"]
        return {"success": True, "new_version": self.label}

    async def add(self, asked: dict[str, Any]) -> Any:
        self.adapters[asked["lora_name"]] = weights_of(Path(asked["lora_path"]))
        return {}

    async def drop(self, asked: dict[str, Any]) -> Any:
        self.adapters.pop(asked["lora_name"])
        return {}

    async def nothing(self, _: dict[str, Any]) -> Any:
        return {"tokens": []}


def logprobs(weights: str, ids: list[int]) -> list[dict[str, Any]]:
    """What these weights say about ids[1:]."""
    source = random.Random(weights)
    table = [-source.random() * 5 for _ in range(LOGPROBS)]
    return [{str(token): {"logprob": table[token % LOGPROBS], "rank": 1}} for token in ids[1:]]


def generated(weights: str, count: int) -> dict[str, Any]:
    """The same token again and again, as sure as these weights are of it."""
    value = logprobs(weights, [0, 7])[0]["7"]["logprob"]
    token = "token_id:7"
    return {
        "tokens": [token] * count,
        "token_logprobs": [value] * count,
        "top_logprobs": [{token: value}] * count,
    }


def take_fault(file: str | None, *paths: str) -> str | None:
    """The fault that waits for one of these, which has then happened."""
    if file is None or not Path(file).exists():
        return None
    waiting: dict[str, str] = msgspec.json.decode(Path(file).read_bytes())
    path = next((path for path in paths if path in waiting), "")
    fault = waiting.pop(path, None)
    if fault is not None:
        if fault.startswith("always "):
            return fault.removeprefix("always ")
        fresh = Path(f"{file}.new")
        fresh.write_bytes(msgspec.json.encode(waiting))
        fresh.replace(file)
    return fault


async def whole(receive: Any) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def answer(send: Any, status: int, content: object) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(content)})


def install(venv: Path) -> Path:
    """Make a folder that looks like an environment with vLLM in it, and return it."""
    (venv / "bin").mkdir(parents=True)
    script = venv / "bin" / "vllm"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" "$@"\n')
    script.chmod(0o755)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "changeover-setup.json").write_text('{"device": "cpu"}')
    return venv


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve")
    parser.add_argument("model", type=Path)
    parser.add_argument("--served-model-name", default="model")
    parser.add_argument("--uds", required=True)
    arguments, _ = parser.parse_known_args()
    fault = take_fault(os.getenv("STAND_IN_FAULTS"), "start")  # noqa: TID251
    if fault == "fails":
        sys.exit(1)
    if text := os.getenv("STAND_IN_EXIT"):  # noqa: TID251
        print(text, flush=True)
        sys.exit(1)
    print("Starting to load model", flush=True)
    asyncio.run(serve(arguments))


async def serve(arguments: argparse.Namespace) -> None:
    engine = Engine(arguments.served_model_name, arguments.model)
    config = uvicorn.Config(Guard(engine), uds=arguments.uds, lifespan="off", log_level="critical")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    main()
