"""What the static check says: findings with names, what changed, and the way of swapping that allows.

Plain data with a text form. `Verdict.refused` is the only thing a caller must obey.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

_SHOWN_NAMES = 12
"""Names in one line of text; the verdict itself holds all of them."""


class Swap(StrEnum):
    """How an engine may take the version, from the cheapest to the safest."""

    IN_PLACE = "in_place"
    ADAPTER = "adapter"
    RESTART = "restart"


class Code(StrEnum):
    """The kinds of finding."""

    TENSOR_MISSING = "tensor_missing"
    FUSED_PART_MISSING = "fused_part_missing"
    TENSOR_UNKNOWN = "tensor_unknown"
    TENSOR_TWICE = "tensor_twice"
    SHAPE = "wrong_shape"
    DTYPE = "wrong_dtype"
    NOT_FINITE = "not_finite"
    ZEROS = "all_zeros"
    FILE_MISSING = "file_missing"
    FILE_TRUNCATED = "file_truncated"
    FILE_EXTRA = "file_extra"
    DIGEST = "digest_differs"
    INDEX = "index_differs"
    FORMAT = "not_safetensors"
    PICKLE = "pickle"
    REMOTE_CODE = "remote_code"
    PATH = "unsafe_path"
    LINK = "link_outside"
    MANIFEST = "bad_manifest"
    CONFIG_INVALID = "config_invalid"
    CONFIG = "config_differs"
    TOKENIZER = "tokenizer_differs"
    TOKENIZER_INVALID = "tokenizer_invalid"
    SPECIAL_TOKENS = "special_tokens_differ"
    CHAT_TEMPLATE = "chat_template_differs"
    GENERATION_CONFIG = "generation_config_differs"
    KIND = "kind_differs"
    BASE = "adapter_base_differs"
    NOTHING_CHANGED = "nothing_changed"
    TIED = "tied_embeddings"


class Finding(msgspec.Struct, frozen=True):
    """One reason; `names` are tensors or files. A finding that does not refuse is a remark."""

    code: Code
    reason: str
    names: tuple[str, ...] = ()
    refuses: bool = True

    def text(self) -> str:
        """One line: code, reason, the first names."""
        shown = ", ".join(self.names[:_SHOWN_NAMES])
        more = f" and {len(self.names) - _SHOWN_NAMES} more" if len(self.names) > _SHOWN_NAMES else ""
        return f"{self.code}: {self.reason}" + (f": {shown}{more}" if shown else "")


class Verdict(msgspec.Struct, frozen=True):
    """The static check's result; `swap` is the cheapest way that what changed allows."""

    findings: tuple[Finding, ...]
    swap: Swap
    tensors: int
    files: int

    @property
    def refused(self) -> bool:
        """At least one finding forbids to publish or serve it."""
        return any(finding.refuses for finding in self.findings)

    def codes(self) -> set[Code]:
        """The kinds of finding that refuse."""
        return {finding.code for finding in self.findings if finding.refuses}

    def text(self) -> str:
        """Several lines for people."""
        head = "refused" if self.refused else f"good, swap {self.swap}"
        lines = [f"{head} ({self.tensors} tensors in {self.files} files)"]
        lines += [("  " if finding.refuses else "  note: ") + finding.text() for finding in self.findings]
        return "\n".join(lines)
