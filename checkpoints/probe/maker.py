"""Computes a probe from a checkpoint's weights. The only module here that needs torch and transformers.

Run in the trainer's or the engine's environment:
`python -m checkpoints.probe.maker DIR --out FILE [--parent DIR] [--texts FILE]`.
With the parent's folder it also computes, text by text, what an engine would say that had kept the
parent's weights, its output head, or any single tensor (as many as fit in the time allowed, those
that changed most first). Weights are read as safetensors, code of a checkpoint is never run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from checkpoints.manifest import Golden
from checkpoints.probe.contract import SCHEMA, Counterfactual, Probe, Scored, encode_probe
from checkpoints.probe.texts import GOLDEN, GOLDEN_CHAT, MAX_IDS, TEXTS

TOP = 5
_LOGITS_AT_A_TIME = 64_000_000
"""256 MB of fp32."""
Rows = Sequence[Sequence[int]]
HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def make_probe(
    folder: Path,
    *,
    parent: Path | None = None,
    texts: Sequence[str] = (),
    seconds: float = 60.0,
    temperature: float = 1.0,
) -> Probe:
    """Score the built-in texts and those given with the folder's weights in fp32.

    Args:
        parent: the version before, for counterfactuals; not used if it is another architecture.
        texts: some of the training data; at most as many as there are built-in ones are used.
        seconds: for single-tensor counterfactuals.
        temperature: divides the logits, as some trainers do; 1 is right for an engine at 1.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = _load(folder)
    own: list[tuple[Literal["plain", "training"], str]] = [("plain", text) for text in TEXTS]
    own += [("training", text) for text in texts[: len(TEXTS)]]
    encoded = [(kind, _ids(tokenizer, text)) for kind, text in own]
    batch = [(kind, ids) for kind, ids in encoded if len(ids) > 1]
    rows = [ids for _, ids in batch]
    scored = [
        Scored(tuple(ids), *numbers, kind=kind)
        for (kind, ids), numbers in zip(batch, _score(model, rows, temperature), strict=True)
    ]
    others: list[Counterfactual] = []
    if parent is not None:
        before = _load(parent)
        if _shapes(before) == _shapes(model):
            others = list(_counterfactuals(model, before, rows, seconds, temperature))
    return Probe(
        schema=SCHEMA,
        trainer_dtype="float32",
        texts=tuple(scored),
        counterfactuals=tuple(others),
        golden=golden_encodings(tokenizer),
        bos=tokenizer.bos_token_id,
        made_by=f"torch {torch.__version__}",
    )


def golden_encodings(tokenizer: Any) -> tuple[Golden, ...]:
    """What the tokenizer makes of a few awkward texts, with special tokens, and of a chat message."""
    found = [Golden(text, tuple(tokenizer(text)["input_ids"])) for text in GOLDEN]
    if tokenizer.chat_template:
        for text in GOLDEN_CHAT:
            messages = [{"role": "user", "content": text}]
            encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)
            found.append(Golden(text, tuple(encoded["input_ids"]), chat=True))
    return tuple(found)


def _load(folder: Path) -> Any:
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    return model.eval()


def _shapes(model: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text)["input_ids"]
    return ids[:MAX_IDS]


def _logprobs(model: Any, rows: Rows, temperature: float) -> Iterator[torch.Tensor]:
    """For each row of n ids the (n - 1, vocabulary) log-probabilities of what follows each but the last.

    Rows are padded on the right, which a causal model does not see, and computed a few at a time.
    """
    size = max(1, _LOGITS_AT_A_TIME // (MAX_IDS * model.config.vocab_size))
    for start in range(0, len(rows), size):
        some = rows[start : start + size]
        width = max(len(ids) for ids in some)
        ids = torch.zeros((len(some), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for index, row in enumerate(some):
            ids[index, : len(row)] = torch.tensor(list(row))
            mask[index, : len(row)] = 1
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask).logits
        for index, row in enumerate(some):
            yield torch.log_softmax(logits[index, : len(row) - 1].float() / temperature, dim=-1)


def _score(
    model: Any, rows: Rows, temperature: float
) -> Iterator[tuple[tuple[float, ...], tuple[tuple[int, ...], ...], tuple[tuple[float, ...], ...]]]:
    for ids, logprobs in zip(rows, _logprobs(model, rows, temperature), strict=True):
        top = logprobs.topk(min(TOP, logprobs.shape[-1]), dim=-1)
        yield (
            _of_targets(logprobs, ids),
            tuple(tuple(row) for row in top.indices.tolist()),
            tuple(tuple(round(value, 6) for value in row) for row in top.values.tolist()),
        )


def _of_targets(logprobs: torch.Tensor, ids: Sequence[int]) -> tuple[float, ...]:
    targets = torch.tensor(list(ids[1:]))[:, None]
    return tuple(round(value, 6) for value in logprobs.gather(1, targets)[:, 0].tolist())


def _counterfactuals(
    model: Any, parent: Any, rows: Rows, seconds: float, temperature: float
) -> Iterator[Counterfactual]:
    until = time.monotonic() + seconds

    def score(one: Any) -> tuple[tuple[float, ...], ...]:
        found = _logprobs(one, rows, temperature)
        return tuple(_of_targets(logprobs, ids) for ids, logprobs in zip(rows, found, strict=True))

    new, old = dict(model.named_parameters()), dict(parent.named_parameters())
    yield Counterfactual("unchanged", tuple(sorted(old)), score(parent))
    with _head_of(model, parent):
        yield Counterfactual("head", (HEAD,), score(model))
    for name in _most_changed(new, old):
        if time.monotonic() > until:
            return
        if name == HEAD or (model.config.tie_word_embeddings and name == EMBEDDING):
            continue
        with _value_of(new[name], old[name]):
            yield Counterfactual("tensor", (name,), score(model))


def _most_changed(new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    changes = {
        name: float((new[name].data - old[name].data).norm() / (old[name].data.norm() + 1e-12))
        for name in new
        if name in old and new[name].shape == old[name].shape
    }
    return [name for name in sorted(changes, key=lambda key: -changes[key]) if changes[name] > 0]


@contextmanager
def _value_of(target: Any, other: Any) -> Iterator[None]:
    kept = target.data
    target.data = other.data
    try:
        yield
    finally:
        target.data = kept


@contextmanager
def _head_of(model: Any, parent: Any) -> Iterator[None]:
    """The output head alone is the parent's, also where it is tied to the input embedding."""
    kept = model.lm_head.weight
    model.lm_head.weight = torch.nn.Parameter(parent.lm_head.weight.data, requires_grad=False)
    try:
        yield
    finally:
        model.lm_head.weight = kept


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Compute a probe from a checkpoint's weights.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parent", type=Path)
    parser.add_argument("--texts", type=Path, help="training texts, one a line")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    arguments = parser.parse_args()
    lines = arguments.texts.read_text().splitlines() if arguments.texts else []
    probe = make_probe(
        arguments.folder,
        parent=arguments.parent,
        texts=[line for line in lines if line.strip()],
        seconds=arguments.seconds,
        temperature=arguments.temperature,
    )
    arguments.out.write_bytes(encode_probe(probe))


if __name__ == "__main__":
    main()
