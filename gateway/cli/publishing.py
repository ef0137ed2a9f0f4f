"""`changeover publish`: a trainer's folder becomes a version of a store."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from checkpoints.contents import ADAPTER_CONFIG
from checkpoints.draft import Metrics, Request
from checkpoints.manifest import Manifest
from checkpoints.probe.making import has_torch, make_probe_with
from checkpoints.publish import Published
from checkpoints.publish import publish as publish_folder
from checkpoints.store.open import models, open_store
from checkpoints.store.store import Store
from gateway.cli import checkpoints_view as view
from gateway.cli.options import fail
from gateway.cli.stores import DEFAULT_STORE, JsonOption, ModelOption, StoreOption, sentences
from gateway.cli.watching import PublishOne
from gateway.cli.watching import watch as watch_folder

_ENGINE_PYTHON = Path(".venv-engine/bin/python")
_AUTO, _NONE = "auto", "none"


RunOption = Annotated[str | None, typer.Option(help="The training run. Default: the name of DIR's parent.")]
StepOption = Annotated[int | None, typer.Option(min=0, help="Default: the number at the end of DIR's name.")]
MetricsOption = Annotated[
    list[str] | None, typer.Option(metavar="KEY=NUMBER", help="Training metrics; may be repeated.")
]
ProbeOption = Annotated[
    str, typer.Option(metavar="auto|none|FILE", help="Make it if there is torch, or none, or take this.")
]
ProbePythonOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="An interpreter with torch. Default: this one, or .venv-engine's."),
]
ProbeTextsOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Training texts, one a line.")]
ProbeSecondsOption = Annotated[
    float, typer.Option(min=0, help="For the numbers that find a single stale tensor.")
]
UntieOption = Annotated[
    bool | None, typer.Option("--untie/--as-is", help="Write a tied model's output head out.")
]
RestartAllowedOption = Annotated[
    bool, typer.Option("--restart-allowed", help="Configuration, tokenizer or template may differ.")
]
TakeOverOption = Annotated[
    bool, typer.Option("--take-over", help="Publish although another run has superseded this one.")
]
MergedOption = Annotated[bool, typer.Option("--merged", help="Full weights that an adapter was merged into.")]
MaxRateOption = Annotated[
    float | None, typer.Option(min=0.001, metavar="MB/S", help="Copy no faster than this.")
]
SignOption = Annotated[Path | None, typer.Option(metavar="FILE", help="Sign with this private key (PEM).")]


WatchOption = Annotated[
    bool,
    typer.Option("--watch", help="DIR is a run's output folder: publish what is done there."),
]
SettleOption = Annotated[
    float,
    typer.Option(min=0, metavar="S", help="--watch: an unmarked folder is done when quiet so long."),
]
IdleOption = Annotated[
    float | None, typer.Option(min=0, metavar="S", help="--watch: end when nothing new came for so long.")
]


def publish(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="The checkpoint, in the Hugging Face layout.")
    ],
    store: StoreOption = DEFAULT_STORE,
    model: ModelOption = None,
    run: RunOption = None,
    step: StepOption = None,
    metrics: MetricsOption = None,
    probe: ProbeOption = _AUTO,
    probe_python: ProbePythonOption = None,
    probe_texts: ProbeTextsOption = None,
    probe_seconds: ProbeSecondsOption = 60.0,
    untie: UntieOption = None,
    restart_allowed: RestartAllowedOption = False,
    take_over: TakeOverOption = False,
    merged: MergedOption = False,
    base: Annotated[int | None, typer.Option(help="Adapters: the version that they rest on.")] = None,
    max_rate: MaxRateOption = None,
    sign: SignOption = None,
    watch: WatchOption = False,
    settle: SettleOption = 30.0,
    idle: IdleOption = None,
    as_json: JsonOption = False,
) -> None:
    """Publish a checkpoint into a store, whole or not at all.

    Example: changeover publish out/checkpoint-50 --store /mnt/store --run r1 --metrics reward=0.4
    """
    if watch and (step is not None or probe not in (_AUTO, _NONE)):
        fail("--watch takes steps from the folders' names, and makes each probe itself", code=2)

    def bring(one: Path, number: int) -> Published:
        request = Request(
            run=run or _safe((folder if watch else folder.resolve().parent).resolve().name),
            step=number,
            kind="merged" if merged else None,
            untie=untie,
            base=base,
            metrics=_metrics(metrics or []),
            probe=None if probe in (_AUTO, _NONE) else Path(probe).read_bytes(),
            restart_allowed=restart_allowed,
            take_over=take_over,
            bytes_per_s=None if max_rate is None else max_rate * 1e6,
        )
        making = _maker(one, probe_python, probe_texts, probe_seconds) if probe == _AUTO else None
        with _bar(shown=not as_json) as report:
            return publish_folder(
                one, opened, request, progress=report, sign=_signer(sign), make_probe=making
            )

    with sentences():
        opened = open_store(store, model or _model(store, folder))
        if watch:
            _watch(folder, opened, run or _safe(folder.resolve().name), bring, settle, idle, as_json)
            return
        start = time.monotonic()
        made = bring(folder, _step(folder) if step is None else step)
    _told(made, time.monotonic() - start, as_json)


def _watch(
    folder: Path,
    store: Store,
    run: str,
    bring: PublishOne,
    settle_s: float,
    idle_s: float | None,
    as_json: bool,
) -> None:
    """Ends with 130 on Ctrl-C."""

    def told(made: Published, seconds: float) -> None:
        _told(made, seconds, as_json)

    try:
        count = watch_folder(folder, store, run, bring, told, settle_s=settle_s, idle_s=idle_s)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    print(f"{count} published; nothing new for {idle_s:g} s", file=sys.stderr)


def _told(made: Published, seconds: float, as_json: bool) -> None:
    if as_json:
        view.print_json({**view.summary(made.manifest), "existing": made.existing, "seconds": seconds})
    else:
        print(view.published_text(made, seconds))
    sys.stdout.flush()


def _signer(key: Path | None) -> Callable[[Manifest], Manifest] | None:
    if key is None:
        return None
    from checkpoints.signatures import signer

    return signer(key)


def _maker(
    folder: Path, python: Path | None, texts: Path | None, seconds: float
) -> Callable[[Path, Path | None], bytes] | None:
    if (folder / ADAPTER_CONFIG).exists():
        return None  # only the engine has the base that an adapter's numbers need
    if python is None and not has_torch():
        if not _ENGINE_PYTHON.exists():
            print("no probe is made: no torch here, name an interpreter with --probe-python", file=sys.stderr)
            return None
        python = _ENGINE_PYTHON
    return lambda folder, parent: make_probe_with(folder, parent, python=python, texts=texts, seconds=seconds)


def _model(store: str, folder: Path) -> str:
    found = models(store)
    if len(found) == 1:
        return found[0]
    name = folder.resolve().name
    return _safe(folder.resolve().parent.name if re.fullmatch(r"(checkpoint|step)[-_]?\d+", name) else name)


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name).lstrip(".-")[:128] or "model"


def _step(folder: Path) -> int:
    found = re.search(r"(\d+)$", folder.resolve().name)
    if found is None:
        fail(f"{folder}: which training step is this? Say --step N")
    return int(found[1])


def _metrics(assignments: list[str]) -> Metrics:
    metrics: Metrics = {}
    for assignment in assignments:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            fail(f"--metrics {assignment}: write KEY=VALUE, as --metrics reward=0.4", code=2)
        try:
            metrics[key] = float(value)
        except ValueError:
            metrics[key] = value
    return metrics


@contextmanager
def _bar(*, shown: bool) -> Iterator[Callable[[int, int], None] | None]:
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("publish")
        yield lambda done, total: bar.update(task, completed=done, total=total)
