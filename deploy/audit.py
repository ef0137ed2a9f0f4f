"""`make security`: code, dependencies and licences, each by a kept tool, with an honest last line.

    python3 deploy/audit.py

- bandit over what runs in production; medium findings and above count.
- pip-audit over the pinned dependencies; a database that cannot be reached is "unknown", never "none".
- the licences of what an installed gateway runs with: none may ask more of its user than to name it.
- an SBOM (CycloneDX) of the same, `build/sbom.json`.

The tools live in `.venv-audit`, apart from what they look at. Needs `make setup`. Ends with 1 on a finding.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-audit"
CONSTRAINTS = ROOT / "deploy" / "constraints"
CODE = ("gateway", "backends", "checkpoints", "training", "deploy")
RUNTIME = "changeover[otel,s3,signatures,kubernetes]"
COPYLEFT = ("GPL", "AGPL", "SSPL", "BUSL", "COMMONS CLAUSE")
"""In a licence's name. LGPL counts too: an image hands it on."""
KNOWN = {"promql-parser": "MIT"}
"""Licences of packages whose metadata names none."""

CLOSURE = """
import json, re, sys
from importlib.metadata import PackageNotFoundError, distribution
from packaging.requirements import Requirement
seen, todo = {}, [Requirement(sys.argv[1])]
while todo:
    wanted = todo.pop()
    name = re.sub(r"[-_.]+", "-", wanted.name).lower()
    if wanted.extras <= seen.get(name, set()) and name in seen:
        continue
    seen.setdefault(name, set()).update(wanted.extras)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        continue
    for line in found.requires or []:
        need = Requirement(line)
        if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in {"", *wanted.extras}):
            todo.append(need)
print(json.dumps(sorted(seen)))
"""


def run(*command: str | Path, check: bool = False) -> subprocess.CompletedProcess[str]:
    """The command's output; never raises unless `check`."""
    return subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=check
    )


def tools() -> Path:
    """Install the tools once; returns where they lie."""
    pins = CONSTRAINTS / "audit.txt"
    stamp = VENV / "pins"
    if not stamp.exists() or stamp.read_text() != pins.read_text():
        print("installing the tools ...", flush=True)
        run(sys.executable, "-m", "venv", VENV, check=True)
        run(VENV / "bin" / "python", "-m", "pip", "install", "-q", "-r", pins, check=True)
        stamp.write_text(pins.read_text())
    return VENV / "bin"


def code(binaries: Path) -> int:
    """Findings of medium severity or more."""
    found = run(binaries / "bandit", "-q", "-ll", "-c", "pyproject.toml", "-f", "json", "-r", *CODE)
    results = json.loads(found.stdout or "{}").get("results", [])  # noqa: TID251 (standard library only)
    for result in results:
        print(f"  {result['filename']}:{result['line_number']}: {result['issue_text']}")
    return len(results)


def runtime_packages() -> list[str]:
    """What an installed gateway consists of, by normalised name."""
    python = ROOT / ".venv" / "bin" / "python"
    names: list[str] = json.loads(run(python, "-c", CLOSURE, RUNTIME, check=True).stdout)  # noqa: TID251
    return [name for name in names if name != "changeover"]


def vulnerabilities(binaries: Path) -> tuple[str, bool]:
    """How many are known, and whether that is a finding."""
    pins = CONSTRAINTS / "gateway.txt"
    found = run(*(binaries / "pip-audit", "--strict", "--no-deps", "--disable-pip", "-f", "json", "-r", pins))
    try:
        packages = json.loads(found.stdout)["dependencies"]  # noqa: TID251 (standard library only)
    except (ValueError, KeyError):
        reason = (found.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"  the vulnerability database was not reached, nothing is known: {reason[:200]}")
        return "unknown", False
    known = [(one["name"], fault["id"]) for one in packages for fault in one.get("vulns", [])]
    for name, fault in known:
        print(f"  {name}: {fault}")
    return str(len(known)), bool(known)


def licences(binaries: Path, names: list[str]) -> list[str]:
    """Those that ask more of a user than to name them."""
    listed = run(
        *(binaries / "pip-licenses", "--python", ROOT / ".venv" / "bin" / "python"),
        *("--format", "json", "--packages", *names),
        check=True,
    )
    bad: list[str] = []
    for one in json.loads(listed.stdout):  # noqa: TID251 (standard library only)
        licence = KNOWN.get(one["Name"].lower(), one["License"])
        if licence == "UNKNOWN" or any(word in licence.upper() for word in COPYLEFT):
            bad.append(f"{one['Name']}: {licence}")
    for line in bad:
        print(f"  {line}")
    return bad


def bill(binaries: Path) -> Path:
    """Write the SBOM of the gateway's environment."""
    target = ROOT / "build" / "sbom.json"
    target.parent.mkdir(exist_ok=True)
    run(binaries / "cyclonedx-py", "environment", ROOT / ".venv", "-o", target, check=True)
    return target


def main() -> int:
    """See the module."""
    binaries = tools()
    print("code (bandit)")
    findings = code(binaries)
    print("known vulnerabilities (pip-audit)")
    known, vulnerable = vulnerabilities(binaries)
    names = runtime_packages()
    print(f"licences of {len(names)} packages")
    bad = licences(binaries, names)
    sbom = bill(binaries).relative_to(ROOT)
    print(
        f"security: bandit={findings} vulnerabilities={known} packages={len(names)} "
        f"licences={'ok' if not bad else len(bad)} sbom={sbom}"
    )
    return 1 if findings or vulnerable or bad else 0


if __name__ == "__main__":
    sys.exit(main())
