"""What single values of the configuration must look like, and how contradictions are reported.

Types for the fields of `gateway.settings.tree`, which alone uses them. Each refuses a value with a sentence
that says what to write instead, and never repeats a value that may be a secret.
`Contradictions` collects what is wrong between the options of one section and raises it all at once.
Only options that were given contradict each other; a default that does not fit is nobody's mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, BaseModel, Field, SecretStr, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

CONTRADICTION = "contradiction"
"""Type of the pydantic errors that `Contradictions` raises; `ctx["keys"]` holds the paths concerned."""

UNIX_PATH_BYTES = 107
"""Longest path of a Unix socket on Linux (`sun_path` less its end)."""

RUN_DIR_BYTES = 80
"""Leaves room in `UNIX_PATH_BYTES` for the names of the sockets inside."""


def lower(value: object) -> object:
    """Let `Redis` and `VLLM` stand for `redis` and `vllm`."""
    return value.lower() if isinstance(value, str) else value


def switch(value: object) -> object:
    """Let a bare `off` (which YAML takes for false) stand for `off`."""
    return {True: "auto", False: "off"}[value] if isinstance(value, bool) else lower(value)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from None
    return parts


def _engine_url(url: str) -> str:
    if url.startswith("unix:"):
        return _unix_url(url)
    parts = _split(url if "://" in url else f"http://{url}")
    if parts.scheme not in ("http", "dns", "kubernetes"):
        raise ValueError(
            "should be http://host:port, unix:/path, dns://name:port or kubernetes://service.namespace:port; "
            "nothing else is spoken to engines"
        )
    if not parts.hostname or re.search(r"\s", url):
        raise ValueError("names no host: write http://host:port")
    if parts.scheme == "kubernetes" and parts.hostname.count(".") != 1:
        raise ValueError("should name a Service and its namespace: kubernetes://engines.changeover:8000")
    if parts.username is not None or parts.password is not None:
        raise ValueError("should hold no user or password: put the engine's key in `api_key`")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError("should end after the port: the gateway adds the path (`/v1/…`) itself")
    return f"{parts.scheme}://{parts.netloc}"


def _unix_url(url: str) -> str:
    path = url.removeprefix("unix:")
    path = path.removeprefix("//") if path.startswith("//") else path
    if not path.startswith("/"):
        raise ValueError("should name the socket by its whole path: unix:/run/changeover/engine.sock")
    if len(path.encode()) > UNIX_PATH_BYTES:
        raise ValueError(f"is longer than the {UNIX_PATH_BYTES} bytes that a Unix socket's path may have")
    return f"unix:{path}"


def _http_url(url: str) -> str:
    parts = _split(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("should be a URL like http://host:4318")
    return url


def _cache_url(secret: SecretStr) -> SecretStr:
    scheme, colon, _ = secret.get_secret_value().partition("://")
    base, _, kind = scheme.partition("+")
    if not colon or base not in ("redis", "rediss", "unix") or kind not in _REDIS_KINDS[base]:
        raise ValueError(
            "should begin with redis://, rediss:// or unix://, or with redis+sentinel:// or redis+cluster://"
        )
    # The places of several sentinels are no URL by themselves: each of them is.
    _, _, places = secret.get_secret_value().partition("://")
    for place in places.rpartition("@")[2].partition("/")[0].split(","):
        _split(f"redis://{place}")
    if kind != "sentinel":
        _split(f"{base}://{places}")
    elif not places.rpartition("@")[2].partition("/")[2].partition("?")[0].partition("/")[0]:
        raise ValueError("names no master: write redis+sentinel://host:port,host:port/master/0")
    return secret


_REDIS_KINDS = {
    "redis": ("", "sentinel", "cluster"),
    "rediss": ("", "sentinel", "cluster"),
    "unix": ("",),
}


def _password(secret: SecretStr) -> SecretStr:
    value = secret.get_secret_value()
    if not value or not value.isascii() or re.search(r"\s", value):
        raise ValueError("should be text without spaces, at least one character")
    return secret


def _web_origin(origin: str) -> str:
    if origin == "*":
        return origin
    parts = _split(origin)
    if not parts.scheme or not parts.hostname or parts.path or parts.query:
        raise ValueError("should be `*` or an origin like https://app.example.com, without a path")
    return origin


def _key_digest(digest: str) -> str:
    digest = digest.lower()
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise ValueError("should be the key's SHA-256 in hex; `changeover check --hash-key` prints it")
    return digest


def _header_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name):
        raise ValueError("should be the name of an HTTP header, like x-session-id")
    return name.lower()


def _run_directory(path: str) -> str:
    if not path:
        raise ValueError("should be a folder")
    if len(path.encode()) > RUN_DIR_BYTES:
        raise ValueError(
            f"is longer than {RUN_DIR_BYTES} bytes: the paths of the sockets inside would be too long"
        )
    return path


EngineUrl = Annotated[str, AfterValidator(_engine_url)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
CacheUrl = Annotated[SecretStr, AfterValidator(_cache_url)]
Password = Annotated[SecretStr, AfterValidator(_password)]
WebOrigin = Annotated[str, AfterValidator(_web_origin)]
KeyDigest = Annotated[str, AfterValidator(_key_digest)]
HeaderName = Annotated[str, AfterValidator(_header_name)]
RunDirectory = Annotated[str, AfterValidator(_run_directory)]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\s\x00-\x1f\x7f]+$")]


class Contradictions:
    """Collects contradictions within one section; leaving the `with` block raises them all, if any.

    Raises pydantic's ValidationError, whose errors keep the places of the options concerned.
    """

    def __init__(self, section: BaseModel) -> None:
        self._section = section
        self._found: list[InitErrorDetails] = []

    def given(self, *keys: str) -> bool:
        """Whether all of these options were given, rather than left to their defaults."""
        return self._section.model_fields_set.issuperset(keys)

    def add(self, what: str, place: str | tuple[str | int, ...], *others: str) -> None:
        """Report `what` at the option `place`; the options `others` are the rest of the contradiction."""
        location = (place,) if isinstance(place, str) else place
        keys = [location, *((other,) for other in others)]
        error = PydanticCustomError(CONTRADICTION, "{what}", {"what": what, "keys": keys})
        self._found.append(InitErrorDetails(type=error, loc=location, input=None))

    def at_most(self, smaller: str, larger: str, otherwise: str) -> None:
        """Report if `smaller` was given above a given `larger`."""
        low, high = getattr(self._section, smaller), getattr(self._section, larger)
        if self.given(smaller, larger) and low > high:
            self.add(f"should be at most `{larger}` ({high:g}), got {low:g}: {otherwise}", smaller, larger)

    def distinct(self, key: str, field: str, values: Sequence[str]) -> None:
        """Report each element of the list `key` whose `field` an earlier one has too."""
        first: dict[str, int] = {}
        for index, value in enumerate(values):
            if first.setdefault(value, index) != index:
                self.add(f"is the same as in {key}.{first[value]}", (key, index, field))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._found:
            raise ValidationError.from_exception_data(type(self._section).__name__, self._found)
