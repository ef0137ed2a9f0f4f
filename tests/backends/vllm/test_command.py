"""The command line of an engine, word for word."""

from __future__ import annotations

from pathlib import Path

from backends.models.resolve import ResolvedModel
from backends.settings import Device, EngineSettings
from backends.vllm.command import Command, Listen, TcpListen, UnixListen, engine_command

LOCAL = ResolvedModel("/models/tiny", local=True)


def command(
    settings: EngineSettings,
    *,
    model: ResolvedModel = LOCAL,
    device: Device = Device.CPU,
    listen: Listen | None = None,
    inherited: dict[str, str] | None = None,
    scratch: str = "/run/c/backend-0.ipc",
) -> Command:
    return engine_command(
        settings,
        model,
        vllm=Path("/venv/bin/vllm"),
        device=device,
        listen=listen or UnixListen(Path("/run/c/backend-0.sock")),
        token="secret",
        version="base-1",
        scratch=Path(scratch),
        cores=4,
        inherited=inherited or {},
    )


def test_the_defaults_on_cpu() -> None:
    made = command(EngineSettings())

    assert " ".join(made.argv) == (
        "/venv/bin/vllm serve /models/tiny --served-model-name smollm2-135m-instruct "
        "--tensor-parallel-size 1 --max-num-seqs 32 --dtype auto --enforce-eager "
        "--kv-cache-memory-bytes 1073741824 --middleware backends.vllm.guard.Guard --api-server-count 1 "
        "--disable-uvicorn-access-log --shutdown-timeout 30 --uds /run/c/backend-0.sock"
    )
    assert made.environment == {
        "CHANGEOVER_GUARD_TOKEN": "secret",
        "CHANGEOVER_MODEL_VERSION": "base-1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "OMP_WAIT_POLICY": "PASSIVE",
        "OMP_NUM_THREADS": "2",
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": "/run/c/backend-0.ipc",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "3600",
        "VLLM_LOGGING_COLOR": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",
    }


def test_everything_set_on_cuda() -> None:
    settings = EngineSettings(
        model="org/model-7b",
        served_name="big",
        tensor_parallel_size=4,
        max_batch_size=256,
        max_model_len=8192,
        dtype="bfloat16",
        eager=False,
        gpu_memory_utilization=0.85,
        enable_lora=True,
        shutdown_timeout_s=5,
        extra_args=("--max-loras", "3"),
        env={"NCCL_DEBUG": "WARN"},
    )

    made = command(
        settings,
        model=ResolvedModel("org/model-7b", local=False),
        device=Device.CUDA,
        listen=TcpListen("0.0.0.0", 8001),
    )

    assert " ".join(made.argv) == (
        "/venv/bin/vllm serve org/model-7b --served-model-name big --tensor-parallel-size 4 "
        "--max-num-seqs 256 --dtype bfloat16 --max-model-len 8192 --enable-lora "
        "--max-loras 2 --max-cpu-loras 4 "
        "--gpu-memory-utilization 0.85 --middleware backends.vllm.guard.Guard --api-server-count 1 "
        "--disable-uvicorn-access-log --shutdown-timeout 5 --max-loras 3 --host 0.0.0.0 --port 8001"
    )
    assert made.environment["NCCL_DEBUG"] == "WARN"
    assert made.environment["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert "HF_HUB_OFFLINE" not in made.environment
    assert "VLLM_CPU_OMP_THREADS_BIND" not in made.environment


def test_ranks_share_the_kv_cache_of_one_engine() -> None:
    made = command(EngineSettings(tensor_parallel_size=2, kv_cache_gib=0.5))

    assert made.argv[made.argv.index("--kv-cache-memory-bytes") + 1] == str(2**28)
    assert "VLLM_ENABLE_V1_MULTIPROCESSING" not in made.environment


def test_the_address_cannot_be_changed_by_extra_arguments() -> None:
    made = command(EngineSettings(extra_args=("--uds", "/elsewhere")))

    assert made.argv[-2:] == ("--uds", "/run/c/backend-0.sock")


def test_the_gateways_own_variables_stay_with_the_gateway() -> None:
    made = command(EngineSettings(), inherited={"CHANGEOVER_ADMIN__TOKEN": "hunter2", "PATH": "/bin"})

    assert made.environment["PATH"] == "/bin"
    assert "hunter2" not in made.environment.values()


def test_nobody_can_set_the_token_from_outside() -> None:
    settings = EngineSettings(env={"CHANGEOVER_GUARD_TOKEN": "known"})

    assert command(settings).environment["CHANGEOVER_GUARD_TOKEN"] == "secret"


def test_a_scratch_folder_too_deep_for_sockets_is_not_used() -> None:
    made = command(EngineSettings(), inherited={"TMPDIR": "/tmp"}, scratch="/" + "x" * 80)

    assert made.environment["TMPDIR"] == "/tmp"


def test_all_replicas_together_use_no_more_threads_than_there_are_cores() -> None:
    def threads(**settings: int) -> str:
        return command(EngineSettings.model_validate(settings)).environment["OMP_NUM_THREADS"]

    assert threads(replicas=1) == "4"
    assert threads(replicas=2) == "2"
    assert threads(replicas=1, tensor_parallel_size=2) == "2"
    assert threads(replicas=16) == "1"


def test_a_number_of_threads_that_the_operator_chose_stays() -> None:
    assert command(EngineSettings(env={"OMP_NUM_THREADS": "3"})).environment["OMP_NUM_THREADS"] == "3"
    assert command(EngineSettings(), inherited={"OMP_NUM_THREADS": "3"}).environment["OMP_NUM_THREADS"] == "3"
