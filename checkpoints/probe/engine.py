"""What the replay asks of an engine: a few OpenAI-compatible calls over HTTP or a Unix socket.

Made for vLLM's `prompt_logprobs` and `return_tokens_as_token_ids`; a server that has only `echo`
with `logprobs` works too, without likeliest tokens. Knows nothing of probes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

import httpx2
import msgspec

from checkpoints.errors import CheckpointError

TOP = 5
_TIMEOUT = httpx2.Timeout(120.0, connect=5.0)
_ID_PREFIX = "token_id:"


class EngineError(CheckpointError):
    """The engine cannot be reached, or cannot do what the probe needs."""


class Place(msgspec.Struct, frozen=True):
    """One place of a text: the token's log-probability, and the likeliest tokens by id."""

    logprob: float
    top: dict[int, float]


class _Entry(msgspec.Struct):
    logprob: float
    rank: int | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    prompt_logprobs: list[dict[str, _Entry] | None] | None = None
    logprobs: _Logprobs | None = None


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Tokenized(msgspec.Struct):
    tokens: list[int]


class _Checksums(msgspec.Struct):
    checksums: dict[str, str]


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model]


class Engine:
    """One engine; use as a context manager. `url` is `http://host:port` or `unix:/path`.

    `headers` go with every request: the token of a guard in front of the engine's control paths, say.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.url = url
        base, transport = _where(url)
        sent = {**(headers or {}), **({"authorization": f"Bearer {api_key}"} if api_key else {})}
        self._http = httpx2.Client(
            base_url=base, transport=transport, headers=sent, timeout=_TIMEOUT, trust_env=False
        )
        self._model = model
        self._echo = self._plain = False
        self.max_tokens = 512

    def __enter__(self) -> Engine:
        try:
            found = self._models()
            if not found:
                raise EngineError(f"{self.url} serves no model")
        except BaseException:
            self._http.close()
            raise
        chosen = next((entry for entry in found if entry.id == self._model), found[0])
        self._model = self._model or chosen.id
        self.max_tokens = chosen.max_model_len or self.max_tokens
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @property
    def model(self) -> str:
        """The name of the model that is asked."""
        return self._model or ""

    def score(self, ids: Sequence[int]) -> list[Place]:
        """Each of ids[1:] given those before it; raises `EngineError`."""
        if not self._echo:
            places = self._prompt_logprobs(ids)
            if places is not None:
                return places
            self._echo = True
        return self._echoed(ids)

    def generate(
        self, ids: Sequence[int], count: int, *, salt: str | None = None, temperature: float | None = None
    ) -> list[Place]:
        """Continue by up to `count` tokens; `salt` keeps the answer from a prefix cached under another salt.

        A server that knows only OpenAI's fields is asked without salt, and its likeliest tokens have no ids.
        """
        body: dict[str, object] = {"prompt": list(ids), "max_tokens": count, "logprobs": TOP}
        if temperature is not None:
            body["temperature"] = temperature
        more: dict[str, object] = {"return_tokens_as_token_ids": True, "ignore_eos": True}
        if salt is not None:
            more["cache_salt"] = salt
        found = self._complete(body if self._plain else {**body, **more}, may_be_refused=not self._plain)
        if found is None:
            self._plain = True
            found = self._complete(body)
        if found is None or found.logprobs is None or not found.logprobs.token_logprobs:
            raise EngineError(f"{self.url} gives no logprobs of what it generates")
        return _generated(found.logprobs)

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[Place]]:
        """Continue all prompts greedily by `count` tokens in one request, which vLLM computes as a batch."""
        asked = {"prompt": [list(ids) for ids in prompts], "max_tokens": count, "logprobs": TOP}
        fields = {"temperature": 0, "return_tokens_as_token_ids": True, "ignore_eos": True}
        choices = self._choices(self._post("/v1/completions", {"model": self._model, **asked, **fields}))
        if len(choices) != len(prompts) or any(choice.logprobs is None for choice in choices):
            raise EngineError(f"{self.url} does not answer a list of prompts with logprobs")
        ordered = sorted(choices, key=lambda choice: choice.index)
        return [_generated(choice.logprobs or _Logprobs()) for choice in ordered]

    def tokenize(self, text: str, *, chat: bool) -> list[int] | None:
        """The engine's ids of a text or a user's message; None where it has no `/tokenize`."""
        what: dict[str, object] = {"prompt": text}
        if chat:
            what = {"messages": [{"role": "user", "content": text}]}
        answer = self._post("/tokenize", {"model": self._model, **what})
        if answer.status_code != 200:
            return None
        return msgspec.json.decode(answer.content, type=_Tokenized).tokens

    def weight_checksums(self) -> dict[str, str] | None:
        """sha256 of each parameter's memory, by rank and name; None where the engine tells none."""
        answer = self._post("/weight_checker", {"action": "checksum"})
        if answer.status_code != 200:
            return None
        try:
            return msgspec.json.decode(answer.content, type=_Checksums).checksums
        except msgspec.DecodeError:
            return None

    def _prompt_logprobs(self, ids: Sequence[int]) -> list[Place] | None:
        body = {"prompt": list(ids), "max_tokens": 1, "temperature": 0, "prompt_logprobs": TOP}
        answer = self._complete(body, may_be_refused=True)
        found = answer.prompt_logprobs if answer is not None else None
        if not found:
            return None
        places: list[Place] = []
        for token, entries in zip(ids[1:], found[1:], strict=True):
            by_id = {int(key): entry.logprob for key, entry in (entries or {}).items()}
            if token not in by_id:
                raise EngineError(f"{self.url} left a token of the prompt without logprob")
            places.append(Place(by_id[token], by_id))
        return places

    def _echoed(self, ids: Sequence[int]) -> list[Place]:
        body = {"prompt": list(ids), "max_tokens": 1, "temperature": 0, "logprobs": 1, "echo": True}
        answer = self._complete(body)
        found = answer.logprobs if answer is not None else None
        if found is None or len(found.token_logprobs) < len(ids):
            raise EngineError(f"{self.url} has neither prompt_logprobs nor echo: it cannot be probed")
        numbers = found.token_logprobs[1 : len(ids)]
        return [Place(float("nan") if number is None else number, {}) for number in numbers]

    def _complete(self, body: dict[str, object], *, may_be_refused: bool = False) -> _Choice | None:
        answer = self._post("/v1/completions", {"model": self._model, **body})
        if may_be_refused and answer.status_code in (400, 422):
            return None
        choices = self._choices(answer)
        if not choices:
            raise EngineError(f"{self.url} answered a completion without a choice")
        return choices[0]

    def _choices(self, answer: httpx2.Response) -> list[_Choice]:
        if answer.status_code != 200:
            raise EngineError(f"{self.url} answered {answer.status_code}: {answer.text[:300]}")
        try:
            return msgspec.json.decode(answer.content, type=_Completion).choices
        except msgspec.DecodeError as error:
            raise EngineError(f"{self.url} answered something that is no completion: {error}") from error

    def _models(self) -> list[_Model]:
        try:
            answer = self._http.get("/v1/models")
        except httpx2.HTTPError as error:
            raise EngineError(f"{self.url} cannot be reached: {error}") from error
        if answer.status_code != 200:
            raise EngineError(f"{self.url}/v1/models answered {answer.status_code}: {answer.text[:200]}")
        try:
            return msgspec.json.decode(answer.content, type=_Models).data
        except msgspec.DecodeError as error:
            raise EngineError(f"{self.url}/v1/models answered something unexpected: {error}") from error

    def _post(self, path: str, body: dict[str, object]) -> httpx2.Response:
        try:
            return self._http.post(
                path, content=msgspec.json.encode(body), headers={"content-type": "application/json"}
            )
        except httpx2.HTTPError as error:
            raise EngineError(f"{self.url} cannot be reached: {error}") from error


def _generated(found: _Logprobs) -> list[Place]:
    tops = found.top_logprobs or [None] * len(found.tokens)
    return [
        Place(math.nan if number is None else number, _by_id({**(top or {}), token: number or 0.0}))
        for token, number, top in zip(found.tokens, found.token_logprobs, tops, strict=True)
    ]


def _where(url: str) -> tuple[str, httpx2.HTTPTransport | None]:
    if url.startswith("unix:"):
        return "http://engine", httpx2.HTTPTransport(uds=url.removeprefix("unix:").removeprefix("//"))
    full = url if "://" in url else f"http://{url}"
    parts = urlsplit(full)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}", None


def _by_id(entries: dict[str, float]) -> dict[int, float]:
    return {
        int(key.removeprefix(_ID_PREFIX)): value
        for key, value in entries.items()
        if key.startswith(_ID_PREFIX)
    }
