"""The probe: token ids of short texts and what the trainer's weights say about them, plain data.

Scored with token ids, not text, so that the comparison needs no tokenizer. Log-probabilities are
natural logarithms in fp32, of each token given the tokens before it; the first token of a text has
none. `Counterfactual`s are the same numbers for weights that are wrong in one named way, computed
beside the right ones: an engine that agrees with one of them has exactly that fault.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from checkpoints.errors import ManifestError
from checkpoints.manifest import Golden

SCHEMA = 1
MAX_TEXTS, MAX_TOKENS = 512, 4096

Token = Annotated[int, msgspec.Meta(ge=0)]


class Scored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One text: n `ids`, n - 1 `logprobs` of ids[1:], the likeliest ids with theirs at each place."""

    ids: tuple[Token, ...]
    logprobs: tuple[float, ...]
    top_ids: tuple[tuple[Token, ...], ...]
    top_logprobs: tuple[tuple[float, ...], ...]
    kind: Literal["plain", "training"] = "plain"


class Counterfactual(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the engine would say if `names` had kept the parent's values; one list for each text."""

    cause: Literal["unchanged", "head", "tensor"]
    names: tuple[str, ...]
    logprobs: tuple[tuple[float, ...], ...]


class Probe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the replay needs; `bos` is the beginning-of-text id, if the tokenizer adds one."""

    schema: int
    trainer_dtype: str
    texts: tuple[Scored, ...]
    counterfactuals: tuple[Counterfactual, ...] = ()
    golden: tuple[Golden, ...] = ()
    bos: int | None = None
    made_by: str = ""

    def tokens(self) -> int:
        """Scored places."""
        return sum(len(text.logprobs) for text in self.texts)


def encode_probe(probe: Probe) -> bytes:
    """The bytes of the probe's file."""
    return msgspec.json.encode(probe)


def decode_probe(raw: bytes, where: str) -> Probe:
    """Read a probe strictly; raises `ManifestError`."""
    try:
        probe = msgspec.json.decode(raw, type=Probe)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{where}: not a probe: {error}") from error
    if probe.schema != SCHEMA:
        raise ManifestError(f"{where}: schema {probe.schema}, this program reads {SCHEMA}")
    if not probe.texts or len(probe.texts) > MAX_TEXTS:
        raise ManifestError(f"{where}: {len(probe.texts)} texts, 1 to {MAX_TEXTS} are right")
    for text in probe.texts:
        places = len(text.ids) - 1
        if not 1 <= places < MAX_TOKENS or {
            len(text.logprobs),
            len(text.top_ids),
            len(text.top_logprobs),
        } != {places}:
            raise ManifestError(f"{where}: a text of {len(text.ids)} ids has {len(text.logprobs)} numbers")
    for other in probe.counterfactuals:
        if [len(numbers) for numbers in other.logprobs] != [len(text.logprobs) for text in probe.texts]:
            raise ManifestError(f"{where}: the counterfactual {other.names[:3]} does not fit the texts")
    return probe
