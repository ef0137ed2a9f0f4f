"""The command line and environment of one `vllm serve`. Pure: settings in, argv and variables out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backends.layout import MAX_SOCKET_PATH
from backends.models.resolve import ResolvedModel, served_name
from backends.settings import Device, EngineSettings
from backends.vllm.guard import TOKEN_VARIABLE, VERSION_VARIABLE

GUARD = "backends.vllm.guard.Guard"
KEEP_ALIVE_S = 3600
"""vLLM closes idle connections after 5 s by itself, which races with whoever reuses one; the gateway
closes its own long before this."""
OWN_PREFIX = "CHANGEOVER_"
"""Variables of ours may hold secrets of the gateway; the engine gets none but those set here."""
IPC_NAME_BYTES = 37
"""vLLM names the sockets between its processes by UUIDs."""
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class UnixListen:
    path: Path


@dataclass(frozen=True, slots=True)
class TcpListen:
    host: str
    port: int


Listen = UnixListen | TcpListen


@dataclass(frozen=True, slots=True)
class Command:
    argv: tuple[str, ...]
    environment: dict[str, str]
    """The whole environment, not only what differs."""


def engine_command(
    settings: EngineSettings,
    model: ResolvedModel,
    *,
    vllm: Path,
    device: Device,
    listen: Listen,
    token: str,
    version: str,
    scratch: Path,
    cores: int,
    inherited: Mapping[str, str],
) -> Command:
    """What starts this engine. `vllm` is the executable, `device` what its build runs on (not `auto`).

    `scratch` is a private folder for the sockets between the engine's own processes.

    `cores`: those that this process may run on, shared by all replicas.

    `settings.extra_args` come last, so they win over what is set here, except for the address.
    """
    environment = _environment(settings, model, device, cores, inherited)
    if len(str(scratch).encode()) + IPC_NAME_BYTES <= MAX_SOCKET_PATH:
        # Sockets between the engine's processes lie there; in a shared folder they would be left behind.
        environment["TMPDIR"] = str(scratch)
    environment |= {TOKEN_VARIABLE: token, VERSION_VARIABLE: version}
    argv = (
        str(vllm),
        "serve",
        model.source,
        *_model_arguments(settings),
        *_device_arguments(settings, device),
        *_server_arguments(settings),
        *settings.extra_args,
        *_address(listen),
    )
    return Command(argv, environment)


def _model_arguments(settings: EngineSettings) -> list[str]:
    arguments = ["--served-model-name", served_name(settings)]
    arguments += ["--tensor-parallel-size", str(settings.tensor_parallel_size)]
    arguments += ["--max-num-seqs", str(settings.max_batch_size)]
    arguments += ["--dtype", settings.dtype]
    if settings.max_model_len is not None:
        arguments += ["--max-model-len", str(settings.max_model_len)]
    if settings.eager:
        arguments += ["--enforce-eager"]
    if settings.enable_lora:
        arguments += ["--enable-lora", "--max-loras", "2", "--max-cpu-loras", "4"]  # old and new run together
    return arguments


def _device_arguments(settings: EngineSettings, device: Device) -> list[str]:
    if device is Device.CUDA:
        return ["--gpu-memory-utilization", f"{settings.gpu_memory_utilization:g}"]
    per_rank = int(settings.kv_cache_gib * GIB / settings.tensor_parallel_size)
    return ["--kv-cache-memory-bytes", str(per_rank)]


def _server_arguments(settings: EngineSettings) -> list[str]:
    return [
        "--middleware",
        GUARD,
        "--api-server-count",
        "1",  # the guard counts and drains within one process
        "--disable-uvicorn-access-log",
        "--shutdown-timeout",
        str(round(settings.shutdown_timeout_s)),
    ]


def _address(listen: Listen) -> list[str]:
    if isinstance(listen, UnixListen):
        return ["--uds", str(listen.path)]
    return ["--host", listen.host, "--port", str(listen.port)]


def _environment(
    settings: EngineSettings,
    model: ResolvedModel,
    device: Device,
    cores: int,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    environment = {name: value for name, value in inherited.items() if not name.startswith(OWN_PREFIX)}
    environment |= {
        "VLLM_SERVER_DEV_MODE": "1",  # control paths exist only with it; the guard closes them to clients
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_S),
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_LOGGING_COLOR": "0",
        "PYTHONUNBUFFERED": "1",
    }
    if device is Device.CPU:
        # Bound threads would put several engines on the same cores.
        environment["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
        # Threads that spin while they wait take the processor from those they wait for: one engine with two
        # threads on two busy cores gave 0.9 tokens a second spinning, 15 to 18 without.
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        # More threads than cores wait for each other at every operation: seen to cost a factor of 50.
        workers = max(1, settings.replicas) * settings.tensor_parallel_size
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // workers)))
    if device is Device.CPU and settings.tensor_parallel_size == 1:
        # The only worker runs inside the engine's core instead of a third process, which is there to bind
        # threads: a third less time to start, half a gigabyte less memory, no busy waiting between the two.
        environment["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if model.local:
        environment["HF_HUB_OFFLINE"] = "1"
    if settings.enable_lora:
        environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    return environment | settings.env
