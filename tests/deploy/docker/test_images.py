"""The images' recipes, and the health check that they share."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deploy.checks import images
from deploy.docker.health import problem
from gateway.cli import COMMANDS
from tests.drivers.process import free_port
from tests.gateways import fakes, gateway_to

GOOD = """
FROM python:3.12.1-slim
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s CMD ["python", "health.py"]
USER 10001:10001
ENTRYPOINT ["changeover"]
"""


def test_hadolint_and_we_have_nothing_against_them() -> None:
    count, wrong = images.check()
    assert count == 4
    assert wrong == []


def test_a_good_recipe_is_let_be() -> None:
    assert list(images.judge(GOOD)) == []


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("USER 10001:10001", "USER 0:0", "not root"),
        ("USER 10001:10001", "", "not root"),
        ("STOPSIGNAL SIGTERM", "", "SIGTERM"),
        ('ENTRYPOINT ["changeover"]', "ENTRYPOINT changeover", "exec form"),
        ('CMD ["python", "health.py"]', 'CMD ["curl", "localhost"]', "neither curl"),
        ('HEALTHCHECK --interval=5s CMD ["python", "health.py"]', "", "no HEALTHCHECK"),
        ("python:3.12.1-slim", "python:slim", "no version"),
        ("python:3.12.1-slim", "python", "no version"),
    ],
)
def test_what_a_recipe_gets_wrong_is_said(good: str, bad: str, said: str) -> None:
    assert any(said in complaint for complaint in images.judge(GOOD.replace(good, bad)))


def test_their_commands_exist() -> None:
    known = {command.name for command in COMMANDS}
    for recipe in images.recipes():
        text = recipe.read_text()
        if "changeover" in text.partition("ENTRYPOINT")[2].partition("\n")[0]:
            command = text.rpartition('CMD ["')[2]
            assert command.partition('"')[0] in known, recipe.name


async def test_the_health_check_says_what_the_route_says() -> None:
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        assert await asyncio.to_thread(problem, f"{gateway.url}/healthz") == ""
        assert await asyncio.to_thread(problem, f"{gateway.url}/readyz") == ""
        await fake.retire()
        assert "status 404" in await asyncio.to_thread(problem, f"{gateway.url}/nowhere")
    assert "refused" in problem(f"http://127.0.0.1:{free_port()}/healthz")


async def test_its_exit_code_is_what_the_container_runtime_reads() -> None:
    script = str(Path(images.FOLDER / "health.py"))
    async with fakes(1) as (fake,), gateway_to(fake) as gateway:
        for url, code in ((f"{gateway.url}/healthz", 0), (f"{gateway.url}/nowhere", 1)):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-I", script, url, stderr=asyncio.subprocess.DEVNULL
            )
            assert await process.wait() == code


def test_what_the_engines_images_run_is_a_command_of_ours(tmp_path: Path) -> None:
    """Up to the point where it looks for vLLM: its options are right."""
    (tmp_path / "infer_config.yaml").write_text(f"run_dir: {tmp_path}/run\n")
    for recipe in images.recipes():
        if not recipe.name.startswith("engine"):
            continue
        words = msgspec.json.decode(re.findall(r"^CMD (\[.*\])$", recipe.read_text(), re.MULTILINE)[-1])
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *words],
            env={
                "PATH": "/usr/bin:/bin",
                "CHANGEOVER_CONFIG": str(tmp_path / "infer_config.yaml"),
                "CHANGEOVER_ENGINE_VENV": str(tmp_path / "none"),
                "CHANGEOVER_CONTROL_TOKEN": "long-enough-for-a-control-port",
            },
            capture_output=True,
            text=True,
            check=False,
            cwd=images.FOLDER.parents[1],
        )
        assert done.returncode == 1, done.stderr
        assert "vLLM is not installed" in done.stderr
