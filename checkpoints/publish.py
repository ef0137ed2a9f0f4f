"""Publishing: a trainer's folder becomes a version, whole or not at all.

Check without an engine, copy and hash in one pass on all cores, look whether the source held still,
decide the number, commit with the manifest last, move `candidate` forward. Publishing the same
contents as the same run and step again gives the version that is there. A publisher killed at any
point leaves nothing a reader can see; the next publisher sweeps what it left. Called by
`changeover publish` and by the trainer's exporter; blocking, so call it from a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from checkpoints.contents import Contents, read_contents
from checkpoints.digest import CHUNK_BYTES, Pace, Progress, Reading, Source, Sums, hash_files, in_parallel
from checkpoints.draft import Request, draft, extra_files
from checkpoints.errors import NotFoundError, RefusedError, SourceChangedError, StoreError
from checkpoints.fence import Claim, Grant, decide
from checkpoints.layout import can_untie, sources_of, untied
from checkpoints.manifest import Form, Manifest, check_name, content_digest, encode
from checkpoints.scan import Scan, scan_tensors
from checkpoints.store.contract import Staging
from checkpoints.store.store import Store, folder_of
from checkpoints.verify import Served, judge

_RETIRED = "retired"
_MAX_RACES = 1000
"""Publishers that may be faster than this one before it gives up."""


class Published(msgspec.Struct, frozen=True):
    """The version, and whether it was there already."""

    manifest: Manifest
    existing: bool
    left_out: tuple[str, ...]


def publish(
    folder: Path,
    store: Store,
    request: Request,
    *,
    progress: Callable[[int, int], None] | None = None,
    sign: Callable[[Manifest], Manifest] | None = None,
    make_probe: Callable[[Path, Path | None], bytes] | None = None,
) -> Published:
    """Publish a folder.

    Args:
        progress: called with bytes done and bytes in all, from several threads, one at a time.
        sign: adds a signature to the finished manifest.
        make_probe: makes the probe from the folder and the newest version's, if that is on this disk.

    Raises:
        RefusedError: the static check found reasons; nothing was copied.
        SourceChangedError: the folder changed meanwhile; nothing was published.
        FencedError: this run may not publish this step.
        StoreError: the store failed or is full; nothing was published.
        OSError: the folder cannot be read.
    """
    check_name("run", request.run)
    root = folder.resolve(strict=True)
    before = _stamps(root)
    newest = store.newest()
    with _present(root):
        found = read_contents(root)
        form, contents, sources = _as_published(root, found, request, newest)
        _refuse_bad(root, found, contents, request, None if newest is None else store.served(newest.version))
    present = find_step(store, request.run, request.step)
    if present is not None:
        _refuse_other_contents(request, present, sources)
        store.advance_candidate(present.version, by=f"run {present.run}")
        return Published(present, True, found.left_out)
    early = Claim(request.run, request.step, "", request.take_over)
    decide(early, newest, None, retired=_is_retired(store, request.run))  # refuse before copying
    if make_probe is not None:
        parent = None if newest is None else store.files.local(newest.data)
        request = msgspec.structs.replace(request, probe=make_probe(root, parent))
    store.sweep_staging()
    staging = store.files.stage()
    try:
        pace = None if request.bytes_per_s is None else Pace(request.bytes_per_s)
        sums = _copy(staging, sources, progress, pace)
        extra = _copy(staging, extra_files(contents, sums, request.probe), None, None)
        if _stamps(root) != before:
            raise SourceChangedError(
                f"{folder} changed while it was copied: publish when the trainer is done"
            )
        manifest = draft(store.model, request, contents, [item.entry for item in sums + extra], form)
        return _commit(store, staging, manifest, request, sign, found.left_out)
    finally:
        staging.discard()


def find_step(store: Store, run: str, step: int) -> Manifest | None:
    """The version of this run and step, looking back through the run's versions from the newest."""
    for version in reversed(store.versions()):
        try:
            manifest = store.manifest(version)
        except NotFoundError:
            continue
        if manifest.run == run and manifest.step == step:
            return manifest
        if manifest.run != run or manifest.step < step:
            return None
    return None


def _as_published(
    root: Path, found: Contents, request: Request, newest: Manifest | None
) -> tuple[Form, Contents, list[Source]]:
    untie = newest is not None and newest.form.kind == "untied" if request.untie is None else request.untie
    if untie and can_untie(found):
        contents, sources = untied(root, found)
        rewritten = tuple(source.path for source in sources if source.whole_file() is None)
        return Form("untied", rewritten), contents, sources
    return Form(), found, sources_of(root, found.files, found)


def _refuse_bad(
    root: Path, found: Contents, contents: Contents, request: Request, served: Served | None
) -> None:
    findings = list(found.findings)
    if request.scan is not Scan.NONE:
        findings += scan_tensors(root, found, request.scan)
    verdict = judge(contents, findings, served, restart_allowed=request.restart_allowed)
    if verdict.refused:
        raise RefusedError(verdict)


@contextmanager
def _present(root: Path) -> Iterator[None]:
    """The trainer's rotation may take files away at any moment."""
    try:
        yield
    except FileNotFoundError as error:
        raise SourceChangedError(
            f"{root} went away while it was published: keep more checkpoints (save_total_limit)"
        ) from error


def _stamps(root: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time and inode of each file: what changes when somebody writes, replaces or removes one."""
    with _present(root):
        stats = {path.relative_to(root).as_posix(): path.stat() for path in root.rglob("*") if path.is_file()}
    return {name: (stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def _copy(
    staging: Staging,
    sources: list[Source],
    progress: Callable[[int, int], None] | None,
    pace: Pace | None,
) -> list[Sums]:
    told = Progress(sum(source.size() for source in sources), progress)

    def on_bytes(count: int) -> None:
        told.add(count)
        if pace is not None:
            pace.add(count)

    def work(source: Source, hashers: Executor) -> Sums:
        reading = Reading(source, hashers, on_bytes, CHUNK_BYTES if pace is None else pace.chunk_bytes)
        staging.put(source, reading)
        return reading.sums()

    return in_parallel(work, sources)


def _refuse_other_contents(request: Request, present: Manifest, sources: list[Source]) -> None:
    digest = content_digest(item.entry for item in hash_files(sources))
    decide(Claim(request.run, request.step, digest), None, present, retired=False)


def _commit(
    store: Store,
    staging: Staging,
    manifest: Manifest,
    request: Request,
    sign: Callable[[Manifest], Manifest] | None,
    left_out: tuple[str, ...],
) -> Published:
    """Take the next number; if somebody is faster, decide again with what is there then."""
    claim = Claim(manifest.run, manifest.step, manifest.digest, request.take_over)
    for _ in range(_MAX_RACES):
        newest = store.newest()
        same = find_step(store, claim.run, claim.step)
        grant = decide(claim, newest, same, retired=_is_retired(store, claim.run))
        if same is not None:
            return Published(same, True, left_out)
        _retire(store, grant, claim)
        numbered = msgspec.structs.replace(
            manifest,
            version=grant.version,
            parent=newest.version if newest is not None else None,
            data=staging.location(folder_of(grant.version)),
        )
        if sign is not None:
            numbered = sign(numbered)
        if request.base is not None:
            store.holds.rest(grant.version, request.base)
        if staging.commit(folder_of(grant.version), encode(numbered)):
            _announce(store, numbered)
            return Published(numbered, False, left_out)
    raise StoreError(f"{_MAX_RACES} other publishers were faster: is a trainer publishing in a loop?")


def _announce(store: Store, manifest: Manifest) -> None:
    store.journal.append(
        "published",
        version=manifest.version,
        by=f"run {manifest.run}",
        detail={"step": manifest.step, "digest": manifest.digest, "bytes": manifest.size()},
    )
    store.advance_candidate(manifest.version, by=f"run {manifest.run}")


def _is_retired(store: Store, run: str) -> bool:
    return store.files.read(f"{_RETIRED}/{run}.json") is not None


def _retire(store: Store, grant: Grant, claim: Claim) -> None:
    """Before the first version of a run: what it supersedes cannot come back by itself."""
    if claim.take_over:
        store.files.remove(f"{_RETIRED}/{claim.run}.json")
    if grant.retires is not None:
        store.files.create(f"{_RETIRED}/{grant.retires}.json", msgspec.json.encode({"by": claim.run}))
