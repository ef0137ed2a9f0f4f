"""`python -m backends.models NAME`: prints the folder of a built-in model, which is made if need be.

For programs that may not import this package (the trainer), and for people. Run it with the Python of the
engine's environment, which converts what has to be converted.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from backends.models.builtin import BUILTIN, ModelNotMade, builtin_model
from backends.models.cache import cache_folder


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in BUILTIN:
        sys.stderr.write(f"usage: python -m backends.models NAME, where NAME is {' or '.join(BUILTIN)}\n")
        return 2
    cache = cache_folder(os.environ, Path.home())  # noqa: TID251 (an entry point)
    try:
        folder = builtin_model(
            sys.argv[1],
            cache=cache,
            engine_python=Path(sys.executable),
            report=lambda line: print(line, file=sys.stderr),  # noqa: T201
        )
    except ModelNotMade as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    sys.stdout.write(f"{folder}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
