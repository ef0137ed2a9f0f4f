"""The static check: everything wrong with a checkpoint that can be known without an engine.

`check_against_served`, `check_files` and `structure.check_structure` are pure functions of headers,
digests and configurations; `verify_folder` adds the reading of files. Nothing here raises for a bad
checkpoint: it returns a `Verdict` with every reason. Called by the publisher before it copies, by
the agent beside an engine before the engine is touched, and by `changeover checkpoints verify`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from checkpoints.contents import Contents, read_contents
from checkpoints.digest import hash_files
from checkpoints.layout import sources_of
from checkpoints.manifest import OWN_FOLDER, Digests, FileEntry, Manifest, TensorEntry, WeightsKind
from checkpoints.scan import Scan, scan_tensors
from checkpoints.structure import check_structure, compare_sets
from checkpoints.verdict import Code, Finding, Swap, Verdict


class Served(msgspec.Struct, frozen=True):
    """What a new version is compared with: the tensor set and facts that engines run now, or the parent's."""

    kind: WeightsKind
    digests: Digests
    tensors: tuple[TensorEntry, ...]
    digest: str | None = None


def verify_folder(
    folder: Path,
    *,
    manifest: Manifest | None = None,
    served: Served | None = None,
    scan: Scan = Scan.FULL,
    restart_allowed: bool = False,
) -> Verdict:
    """Check a trainer's folder, or a version's folder with its manifest.

    Args:
        manifest: compare every file's size and sha256 with it.
        served: compare the tensor set and the launch facts with what is served.
        scan: how much of the weights is read to find NaN, infinities and zeros.
        restart_allowed: a change that only a restart can take (config, tokenizer, template) is a
            remark instead of a refusal.

    Raises:
        OSError: the folder cannot be read.
    """
    contents = read_contents(folder)
    findings = list(contents.findings)
    if manifest is not None:
        findings += _check_stored_files(folder, contents, manifest)
    if contents.headers and scan is not Scan.NONE:
        findings += scan_tensors(folder, contents, scan)
    return judge(contents, findings, served, manifest, restart_allowed=restart_allowed)


def judge(
    contents: Contents,
    findings: list[Finding],
    served: Served | None,
    manifest: Manifest | None = None,
    *,
    restart_allowed: bool = False,
) -> Verdict:
    """Add to `findings` what structure and comparison tell, and conclude."""
    found = [*findings, *check_structure(contents)]
    swap = Swap.ADAPTER if contents.kind == "adapter" else Swap.IN_PLACE
    if served is not None:
        changes, swap = check_against_served(contents, served, manifest, restart_allowed=restart_allowed)
        found += changes
    tensors = sum(len(header.tensors) for header in contents.headers.values())
    return Verdict(_unique(found), swap, tensors, len(contents.files))


def check_against_served(
    contents: Contents, served: Served, manifest: Manifest | None = None, *, restart_allowed: bool = False
) -> tuple[list[Finding], Swap]:
    """What differs from the served version, and the cheapest way of swapping that allows it."""
    digest = manifest.digest if manifest is not None else None
    new = Served(contents.kind, contents.digests, tuple(contents.tensors()), digest)
    return compare_versions(new, served, restart_allowed=restart_allowed)


def compare_versions(
    new: Served, served: Served, *, restart_allowed: bool = False
) -> tuple[list[Finding], Swap]:
    """The same for two versions of which only the records are at hand: no weights are read."""
    adapter = new.kind == "adapter"
    if adapter and served.kind != "adapter":
        return [], Swap.ADAPTER
    changed = _launch_changes(new.digests, served.digests, restart_allowed=restart_allowed)
    findings: list[Finding] = []
    if not adapter and served.kind == "adapter":
        changed.append(Finding(Code.KIND, "full weights, an adapter is served", refuses=not restart_allowed))
    elif not (changed and restart_allowed):  # after a restart another model may be right
        shapes = {entry.name: entry.shape for entry in new.tensors}
        known = {entry.name: entry.shape for entry in served.tensors}
        findings += compare_sets(shapes, known, "the served version", set())
        findings += _dtype_changes(new.tensors, served.tensors)
    if new.digest is not None and new.digest == served.digest:
        findings.append(Finding(Code.NOTHING_CHANGED, "the very bytes that are served", refuses=False))
    if changed:
        return findings + changed, Swap.RESTART
    return findings, Swap.ADAPTER if adapter else Swap.IN_PLACE


def check_files(found: Mapping[str, FileEntry], manifest: Manifest) -> list[Finding]:
    """Compare files as read (size, sha256) with those that the manifest names."""
    findings: list[Finding] = []
    for entry in manifest.files:
        have = found.get(entry.path)
        if have is None:
            findings.append(Finding(Code.FILE_MISSING, "named by the manifest, not there", (entry.path,)))
        elif have.size < entry.size:
            reason = f"{have.size} of {entry.size} bytes"
            findings.append(Finding(Code.FILE_TRUNCATED, reason, (entry.path,)))
        elif have != entry:
            findings.append(
                Finding(Code.DIGEST, "its bytes are not those that were published", (entry.path,))
            )
    return findings


def _dtype_changes(new: Iterable[TensorEntry], old: Iterable[TensorEntry]) -> list[Finding]:
    known = {entry.name: entry.dtype for entry in old}
    changed = [
        f"{e.name} {e.dtype} for {known[e.name]}" for e in new if known.get(e.name, e.dtype) != e.dtype
    ]
    return [Finding(Code.DTYPE, "against the served version", tuple(changed))] if changed else []


def _launch_changes(new: Digests, old: Digests, *, restart_allowed: bool) -> list[Finding]:
    facts = (
        (Code.CONFIG, "config", "config.json"),
        (Code.TOKENIZER, "tokenizer", "tokenizer.json"),
        (Code.SPECIAL_TOKENS, "special_tokens", "special_tokens_map.json"),
        (Code.CHAT_TEMPLATE, "chat_template", "chat_template.jinja"),
        (Code.GENERATION_CONFIG, "generation_config", "generation_config.json"),
    )
    reason = "differs from what is served; engines read it only at launch, so it needs a restart"
    return [
        Finding(code, reason, (file,), refuses=not restart_allowed)
        for code, field, file in facts
        if getattr(new, field) != getattr(old, field)
    ]


def _check_stored_files(folder: Path, contents: Contents, manifest: Manifest) -> list[Finding]:
    own = {path.relative_to(folder).as_posix() for path in (folder / OWN_FOLDER).glob("*") if path.is_file()}
    named = {entry.path: entry.size for entry in manifest.files}
    extra = sorted(path for path in (*contents.files, *own) if path not in named)
    findings = [Finding(Code.FILE_EXTRA, "not named by the manifest", tuple(extra))] if extra else []
    present = [path for path in (*contents.files, *own) if path in named]
    sums = hash_files(sources_of(folder, present, contents))
    return findings + check_files({item.entry.path: item.entry for item in sums}, manifest)


def _unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Each name once: what the index, the configuration and the served version all miss is told once."""
    told: set[tuple[Code, tuple[str, ...]]] = set()
    kept: list[Finding] = []
    for finding in findings:
        key = (finding.code, finding.names)
        if not finding.names or key not in told:
            kept.append(finding)
        told.add(key)
    return tuple(kept)
