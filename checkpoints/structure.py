"""Is a checkpoint whole and even in itself? Pure functions of headers and configuration.

Knows what `architecture` knows: for the Llama family the exact tensor set, for others evenness
of the layers, for adapters that LoRA halves come in pairs. Called by `verify`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from checkpoints import architecture
from checkpoints.contents import CONFIG, Contents
from checkpoints.manifest import TensorEntry
from checkpoints.verdict import Code, Finding

_WEIGHT_DTYPES = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
_CONFIG_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def check_structure(contents: Contents) -> list[Finding]:
    """Is it whole in itself: index against shards, tensor set and shapes against the configuration?"""
    tensors = contents.tensors()
    twice = [name for name, count in Counter(entry.name for entry in tensors).items() if count > 1]
    findings = [Finding(Code.TENSOR_TWICE, "in more than one shard", tuple(twice))] if twice else []
    findings += _check_index(contents)
    findings += _check_dtypes(contents, tensors)
    shapes = {entry.name: entry.shape for entry in tensors}
    if contents.kind == "adapter":
        return findings + _check_adapter(contents, shapes)
    wanted = architecture.expected(contents.config)
    if wanted is not None:
        optional = {"lm_head.weight"} if architecture.is_tied(contents.config) else set()
        findings += compare_sets(shapes, wanted, "the configuration", optional)
    else:
        findings += _check_layers(contents, shapes)
    rows = max(
        (shape[0] for name, shape in shapes.items() if "embed" in name and len(shape) == 2), default=None
    )
    if rows is not None and contents.vocabulary is not None and contents.vocabulary > rows:
        reason = f"ids up to {contents.vocabulary - 1}, the embedding has {rows} rows"
        findings.append(Finding(Code.TOKENIZER_INVALID, reason, ("tokenizer.json",)))
    return findings + _remark_on_tied(contents, shapes)


def compare_sets(
    have: Mapping[str, tuple[int, ...]],
    wanted: Mapping[str, tuple[int, ...]],
    whose: str,
    optional: set[str],
) -> list[Finding]:
    """Missing (told apart: parts of fused tensors), unknown and differently shaped tensors."""
    missing = {name for name in wanted if name not in have}
    parts = {name for name in missing if _rest_is_there(name, have)}
    unknown = [
        n for n in have if n not in wanted and n not in optional and not architecture.IGNORED.search(n)
    ]
    reshaped = [
        f"{n} {list(have[n])} for {list(wanted[n])}" for n in wanted if n in have and have[n] != wanted[n]
    ]
    findings: list[Finding] = []
    if parts:
        reason = "a part of a fused tensor is missing, the engine would compute with uninitialised memory"
        findings.append(Finding(Code.FUSED_PART_MISSING, reason, tuple(sorted(parts))))
    if missing - parts:
        reason = f"{whose} has them, the engine would keep its old values"
        findings.append(Finding(Code.TENSOR_MISSING, reason, tuple(sorted(missing - parts))))
    if unknown:
        findings.append(Finding(Code.TENSOR_UNKNOWN, f"not in {whose}", tuple(sorted(unknown))))
    if reshaped:
        findings.append(Finding(Code.SHAPE, f"against {whose}", tuple(reshaped)))
    return findings


def _rest_is_there(name: str, have: Mapping[str, object]) -> bool:
    group = architecture.fused_part(name)
    return group is not None and any(other in have for other in group if other != name)


def _check_index(contents: Contents) -> list[Finding]:
    placed = {entry.name: entry.file for entry in contents.tensors()}
    if contents.weight_map is None:
        return []
    findings: list[Finding] = []
    absent = sorted({file for file in contents.weight_map.values() if file not in contents.files})
    if absent:
        findings.append(
            Finding(Code.FILE_MISSING, "a shard that the index names is not there", tuple(absent))
        )
    there = {name: file for name, file in contents.weight_map.items() if file in contents.headers}
    wrong = sorted(name for name, file in there.items() if placed.get(name) != file)
    if wrong:
        reason = "the index places them where they are not"
        missing = any(name not in placed for name in wrong)
        findings.append(Finding(Code.TENSOR_MISSING if missing else Code.INDEX, reason, tuple(wrong)))
    extra = sorted(name for name in placed if name not in contents.weight_map)
    if extra:
        findings.append(Finding(Code.INDEX, "the index does not name them, engines skip them", tuple(extra)))
    return findings


def _check_dtypes(contents: Contents, tensors: tuple[TensorEntry, ...]) -> list[Finding]:
    quantised = "quantization_config" in contents.config
    odd = [f"{entry.name} {entry.dtype}" for entry in tensors if entry.dtype not in _WEIGHT_DTYPES]
    findings: list[Finding] = []
    if odd and not quantised:
        findings.append(Finding(Code.DTYPE, "no dtype for weights", tuple(odd)))
    declared = contents.config.get("dtype", contents.config.get("torch_dtype"))
    wanted = _CONFIG_DTYPES.get(declared) if isinstance(declared, str) else None
    counts = Counter(entry.dtype for entry in tensors if len(entry.shape) > 1)
    main = counts.most_common(1)[0][0] if counts else None
    uneven = [f"{e.name} {e.dtype}" for e in tensors if len(e.shape) > 1 and e.dtype not in (main, wanted)]
    if uneven and not quantised:
        findings.append(Finding(Code.DTYPE, f"the other matrices are {main}", tuple(uneven)))
    if wanted and main in _WEIGHT_DTYPES and main != wanted:
        reason = f"the weights are {main}, the configuration says {declared}: the engine converts them"
        findings.append(Finding(Code.DTYPE, reason, (CONFIG,), refuses=False))
    return findings


def _check_layers(contents: Contents, names: Iterable[str]) -> list[Finding]:
    names = list(names)
    findings: list[Finding] = []
    uneven = architecture.uneven_layers(names)
    parts = [name for name in uneven if _rest_is_there(name, dict.fromkeys(names))]
    whole = [name for name in uneven if name not in parts]
    if parts:
        findings.append(Finding(Code.FUSED_PART_MISSING, "other layers have this part", tuple(parts)))
    if whole:
        findings.append(Finding(Code.TENSOR_MISSING, "most layers have it", tuple(whole)))
    wanted, found = architecture.number(contents.config, "num_hidden_layers"), architecture.layer_count(names)
    if wanted is not None and found is not None and found < wanted:
        reason = f"the configuration has {wanted} layers, the weights {found}"
        absent = tuple(f"layer {index}" for index in range(found, wanted))
        findings.append(Finding(Code.TENSOR_MISSING, reason, absent))
    return findings


def _check_adapter(contents: Contents, shapes: Mapping[str, tuple[int, ...]]) -> list[Finding]:
    findings: list[Finding] = []
    stray = [name for name in shapes if "lora_" not in name and "modules_to_save" not in name]
    if stray:
        findings.append(Finding(Code.TENSOR_UNKNOWN, "not of a LoRA adapter", tuple(stray)))
    halves = (_other_half(name) for name in shapes)
    alone = [other for other in halves if other is not None and other not in shapes]
    if alone:
        findings.append(Finding(Code.TENSOR_MISSING, "the other half of the pair is there", tuple(alone)))
    rank = (contents.adapter or {}).get("r")
    if isinstance(rank, int) and not (contents.adapter or {}).get("rank_pattern"):
        wrong = [
            f"{name} {list(shape)}"
            for name, shape in shapes.items()
            if _rank(name, shape) not in (None, rank)
        ]
        if wrong:
            findings.append(Finding(Code.SHAPE, f"adapter_config.json says rank {rank}", tuple(wrong)))
    return findings


def _other_half(name: str) -> str | None:
    for mine, other in (("lora_A", "lora_B"), ("lora_B", "lora_A")):
        if mine in name:
            return name.replace(mine, other)
    return None


def _rank(name: str, shape: tuple[int, ...]) -> int | None:
    if len(shape) != 2:
        return None
    if "lora_A" in name:
        return shape[0]
    return shape[1] if "lora_B" in name else None


def _remark_on_tied(contents: Contents, names: Mapping[str, object]) -> list[Finding]:
    if not architecture.is_tied(contents.config) or "lm_head.weight" in names:
        return []
    reason = "some engines do not reload the output head of tied models: publish the untied form, or restart"
    return [Finding(Code.TIED, reason, (CONFIG,), refuses=False)]
