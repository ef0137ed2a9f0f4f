"""Programs that pip put beside this Python: docker-compose, hadolint, gixy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from deploy.stack.programs import ProgramMissing

LIMIT_S = 120


def run(
    program: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What came of it. Raises ProgramMissing."""
    path = Path(sys.executable).with_name(program)
    if not path.exists():
        raise ProgramMissing(f"{program} is not beside {sys.executable}: `make setup` installs it")
    return subprocess.run(
        [str(path), *arguments], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
