"""The gateway as the trainer sees it: samples of a version that is new enough, and rollouts begun.

Blocking; each method may be called from several threads. What passes (no member yet, a swap, a restart) is
asked again until the time is up; what does not is raised at once.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence

import httpx2
import msgspec

from training.rl.sampling import AT_LEAST, REQUEST, VERSION, BadAnswer, Sample, Sampling, body, read
from training.rl.settings import RlSettings

log = logging.getLogger("training.rl")
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_PAUSE_S, _MAX_PAUSE_S = 0.2, 5.0


class GatewayFailed(Exception):
    """No usable answer in time; the message holds the last reason."""


class Counted:
    """What happened to requests. Written by several threads, each addition under the interpreter's lock."""

    def __init__(self) -> None:
        self.retried: list[str] = []
        self.stale: list[int] = []

    def note(self, reason: str) -> None:
        """A request was asked again."""
        self.retried.append(reason)
        if len(self.retried) > 10_000:
            del self.retried[:5_000]


class Gateway:
    """A context manager; holds the connections."""

    def __init__(self, settings: RlSettings, model: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._model = model
        self._clock = clock
        key = settings.api_key
        headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        limits = httpx2.Limits(max_connections=settings.parallel + 2)
        self._http = httpx2.Client(
            base_url=settings.gateway, headers=headers, limits=limits, trust_env=False, timeout=None
        )
        self.counted = Counted()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def sample(self, prompt: Sequence[int], count: int, sampling: Sampling, least: int) -> list[Sample]:
        """`count` completions of the prompt's ids by version `least` or a newer one.

        Raises:
            GatewayFailed: none came within `rl.request_limit_s`, or the request is refused for good.
        """
        content = body(self._model, prompt, count, sampling)
        deadline = self._clock() + self._settings.request_limit_s
        pause, reason = _PAUSE_S, "no time"
        while (left := deadline - self._clock()) > 0:
            request = f"rl-{uuid.uuid4().hex}"
            headers = _headers(request, left, least)
            try:
                answer = self._http.post("/v1/completions", content=content, headers=headers, timeout=left)
            except httpx2.HTTPError as error:
                reason = f"{self._settings.gateway}: {str(error) or type(error).__name__}"
            else:
                if answer.status_code == 200:
                    label = answer.headers.get(VERSION, "")
                    samples = self._read(answer.content, label, request, prompt, count)
                    if samples[0].version >= least:
                        return samples
                    self.counted.stale.append(count)
                    reason = f"version {label} answered, and {least} was the least"
                else:
                    reason = f"{answer.status_code} {_message(answer.content)}"
                    if answer.status_code not in _PASSING:
                        raise GatewayFailed(f"the gateway refuses rollouts: {reason}")
            self.counted.note(reason)
            time.sleep(max(0.0, min(pause, deadline - self._clock())))
            pause = min(2 * pause, _MAX_PAUSE_S)
        raise GatewayFailed(f"no rollout within {self._settings.request_limit_s:.0f} s: {reason}")

    def _read(self, raw: bytes, label: str, request: str, prompt: Sequence[int], count: int) -> list[Sample]:
        try:
            return read(raw, label, request, prompt, count)
        except BadAnswer as error:
            raise GatewayFailed(str(error)) from error

    def begin(self, version: int) -> None:
        """Begin an atomic rollout, where there is an admin token; else the gateway does by itself.

        One that is under way already is as good. Raises GatewayFailed.
        """
        token = self._settings.admin_token
        if token is None:
            return
        content = msgspec.json.encode({"version": str(version), "mode": "atomic"})
        headers = {"authorization": f"Bearer {token.get_secret_value()}", "x-changeover-by": "trainer"}
        parameters = {"model": self._model}
        try:
            answer = self._http.post(
                "/admin/rollouts", params=parameters, content=content, headers=headers, timeout=30
            )
        except httpx2.HTTPError as error:
            log.warning("the rollout of version %d is not begun here: %s", version, error)
            return
        if answer.status_code in (401, 403, 404):
            raise GatewayFailed(f"rl.admin_token: {answer.status_code} {_message(answer.content)}")
        if answer.status_code not in (201, 409):
            log.warning("the rollout of version %d is not begun here: %s", version, _message(answer.content))


def _headers(request: str, left_s: float, least: int) -> dict[str, str]:
    headers = {"content-type": "application/json", REQUEST: request, "x-request-timeout": f"{left_s:.1f}"}
    return {**headers, AT_LEAST: str(least)} if least > 0 else headers


class _Error(msgspec.Struct):
    message: str = ""


class _Errors(msgspec.Struct):
    error: _Error


def _message(raw: bytes) -> str:
    try:
        return msgspec.json.decode(raw, type=_Errors).error.message
    except msgspec.DecodeError:
        return raw[:200].decode("utf-8", "replace")
