"""How `changeover checkpoints` shows things: tables for people, JSON for programs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from checkpoints.manifest import Manifest, TensorEntry
from checkpoints.publish import Published
from checkpoints.retention import Plan
from checkpoints.store.aliases import Alias
from checkpoints.store.store import Store

_SHOWN = 20


def print_json(value: object) -> None:
    """Indented JSON on stdout."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def summary(manifest: Manifest) -> dict[str, object]:
    """One version in a line of a list."""
    return {
        "model": manifest.model,
        "version": manifest.version,
        "run": manifest.run,
        "step": manifest.step,
        "parent": manifest.parent,
        "kind": manifest.kind,
        "form": manifest.form.kind,
        "created": manifest.created,
        "bytes": manifest.size(),
        "files": len(manifest.files),
        "tensors": manifest.tensor_count,
        "digest": manifest.digest,
        "probe": manifest.has_probe(),
        "signed": manifest.signature is not None,
        "metrics": manifest.metrics,
    }


@contextmanager
def on_disk(store: Store, version: int) -> Iterator[Path]:
    """The version's folder, copied here first where the store is elsewhere."""
    manifest = store.manifest(version)
    folder = store.files.local(manifest.data)
    if folder is not None:
        with store.holds.lease(version, "verify"):
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="changeover-") as made:
        store.fetch(version, Path(made))
        yield Path(made)


def size_text(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def published_text(made: Published, seconds: float) -> str:
    """What was published, in a sentence."""
    manifest = made.manifest
    if made.existing:
        return f"{manifest.model} version {manifest.version} has these contents already"
    rate = size_text(int(manifest.size() / max(seconds, 1e-9)))
    left = f"; left out: {', '.join(made.left_out[:8])}" if made.left_out else ""
    return (
        f"published {manifest.model} version {manifest.version} ({manifest.tensor_count} tensors, "
        f"{size_text(manifest.size())} in {seconds:.1f} s, {rate}/s){left}"
    )


def show_list(
    manifests: list[Manifest], aliases: Mapping[str, Alias], pinned: set[int], *, as_json: bool
) -> None:
    """A table of versions."""
    names: dict[int, list[str]] = {}
    for alias in aliases.values():
        names.setdefault(alias.version or 0, []).append(alias.name)
    for version in pinned:
        names.setdefault(version, []).append("pinned")
    if as_json:
        print_json([{**summary(item), "aliases": names.get(item.version, [])} for item in manifests])
        return
    headings = ("version", "run", "step", "kind", "size", "created", "aliases", "metrics")
    lines = [
        (
            str(item.version),
            item.run,
            str(item.step),
            item.kind + (" untied" if item.form.kind == "untied" else ""),
            size_text(item.size()),
            item.created,
            " ".join(names.get(item.version, [])),
            " ".join(f"{key}={value}" for key, value in item.metrics.items()),
        )
        for item in manifests
    ]
    widths = [max(map(len, column)) for column in zip(headings, *lines, strict=True)]
    for line in (headings, *lines):
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def show_manifest(manifest: Manifest, *, as_json: bool) -> None:
    """Everything about one version."""
    if as_json:
        print_json(manifest)
        return
    for key, value in summary(manifest).items():
        print(f"{key:10} {value}")
    for entry in manifest.files:
        print(f"  {entry.sha256[:16]}  {size_text(entry.size):>9}  {entry.path}")


def show_plan(plan: Plan, *, dry_run: bool) -> None:
    """What went and why the rest stays."""
    print(f"{'would remove' if dry_run else 'removed'} {len(plan.remove)} versions, kept {len(plan.keep)}")
    for version, reason in list(plan.keep.items())[-_SHOWN:]:
        print(f"  version {version}: {reason}")


Side = tuple[Manifest, tuple[TensorEntry, ...]]


def show_diff(left: Side, right: Side, *, as_json: bool) -> None:
    """Tensors, files and launch facts that differ."""
    changes = diff(left, right)
    if as_json:
        print_json(changes)
        return
    print(f"version {left[0].version} -> {right[0].version}")
    for what, names in changes.items():
        shown = ", ".join(names[:_SHOWN]) + (
            f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        )
        print(f"  {what:18} {len(names):6}  {shown}")


def diff(left: Side, right: Side) -> dict[str, list[str]]:
    """Names by kind of change."""
    old = {entry.name: entry for entry in left[1]}
    new = {entry.name: entry for entry in right[1]}
    both = [name for name in new if name in old]
    old_files = {entry.path: entry.sha256 for entry in left[0].files}
    new_files = {entry.path: entry.sha256 for entry in right[0].files}
    facts = ("config", "tokenizer", "special_tokens", "chat_template", "generation_config")
    before, after = msgspec.structs.asdict(left[0].digests), msgspec.structs.asdict(right[0].digests)
    return {
        "tensors added": sorted(new.keys() - old.keys()),
        "tensors removed": sorted(old.keys() - new.keys()),
        "tensors reshaped": [
            name for name in both if (new[name].shape, new[name].dtype) != (old[name].shape, old[name].dtype)
        ],
        "tensors changed": [name for name in both if new[name].digest != old[name].digest],
        "tensors unchanged": [name for name in both if new[name].digest == old[name].digest],
        "files changed": sorted(path for path in new_files if new_files[path] != old_files.get(path)),
        "files removed": sorted(old_files.keys() - new_files.keys()),
        "launch facts": [fact for fact in facts if before[fact] != after[fact]],
    }
