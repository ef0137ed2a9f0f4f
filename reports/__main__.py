"""`python -m reports report.json report.html`: the page of a report that is written down as JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from reports.page import Report, write


def main() -> int:
    if len(sys.argv) != 3:
        sys.stderr.write(f"usage: {(__doc__ or '').split('`')[1]}\n")
        return 2
    source, target = map(Path, sys.argv[1:])
    try:
        report = msgspec.json.decode(source.read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError) as error:
        sys.stderr.write(f"{source}: {error}\n")
        return 1
    sys.stdout.write(f"{write(report, target)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
