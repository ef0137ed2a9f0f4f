"""Which weights a request gets: by a rollout's split, by its own wish. Pure.

A `Split` is a rollout's word to every gateway: what is stable, what is the candidate, and the candidate's
share. Shares are counted out, not drawn: of any n requests in a row that one worker divides, the candidate
gets n times its share, to within one. With a sticky header, requests of one value go one way, and none that
goes to the candidate comes back when the share grows. A client's `Wish` stands above the split.
Callers: `gateway.fleet.fleet` holds the split, `gateway.flow.aim` decides for each request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b

from backends.versions import asked_number, number_of
from gateway.errors import BadRequest

WHOLE = 1_000_000_000
"""Shares are counted in these units: sums of binary fractions would drift."""

MAX_WISH = 128
"""Bytes of a wish; labels are far shorter."""


@dataclass(frozen=True, slots=True)
class Split:
    """How requests are divided between the versions that members serve.

    Members of a third version get nothing but what asks for them. Where the version that is due has no member
    in rotation, the other takes over, if `share` is above 0 and the split is not atomic; else requests wait.
    """

    stable: str | None = None
    """A label; None: whatever is served that is not the candidate."""
    candidate: str | None = None
    """A label; None: there is none, and everything goes to `stable`."""
    share: float = 0.0
    """Of the requests that go to the candidate, 0 to 1. 0: none at all, on no retry either."""
    sticky_header: str | None = None
    """Requests with the same value of this header go the same way; those without it are counted out."""
    atomic: bool = False
    """All members change between two moments: requests get `stable` or wait, until their own deadline, and
    kept answers are not given."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {self.share}")

    @property
    def units(self) -> int:
        """The candidate's share in `WHOLE`."""
        return round(self.share * WHOLE) if self.candidate is not None and not self.atomic else 0

    @property
    def divides(self) -> bool:
        """Whether the candidate gets anything by this split."""
        return self.units > 0


class Shares:
    """One worker's account of what the candidate was given and is owed."""

    __slots__ = ("_candidate", "_owed")

    def __init__(self) -> None:
        self._owed = 0
        self._candidate: str | None = None

    def take(self, split: Split, sticky: bytes = b"") -> bool:
        """Whether the next request is the candidate's. `sticky`: its value of the sticky header, if any."""
        units = split.units
        if sticky and split.sticky_header is not None:
            return place_of(sticky, split.candidate or "") < units
        if split.candidate != self._candidate:
            self._candidate = split.candidate
            self._owed = 0
        owed = self._owed + units
        if owed < WHOLE:
            self._owed = owed
            return False
        self._owed = owed - WHOLE
        return True


def place_of(value: bytes, candidate: str) -> int:
    """Where a sticky value stands among all, from 0 to below `WHOLE`; another order for each candidate."""
    digest = blake2b(value, key=candidate.encode()[:64], digest_size=8).digest()
    return int.from_bytes(digest, "big") * WHOLE >> 64


class Role(StrEnum):
    """Versions that clients may ask for by what they are now."""

    SERVING = "serving"
    CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Wish:
    """What a client asks of the weights that answer it."""

    label: str = ""
    """`x-model-version` as written: a label, or a number's text."""
    number: int | None = None
    """Of the version, where the text names one."""
    role: Role | None = None
    least: int | None = None
    """`x-model-version-min`."""

    def admits(self, label: str) -> bool:
        """Whether weights of this label will do, roles left out."""
        if self.least is not None:
            number = number_of(label)
            if number is None or number < self.least:
                return False
        if not self.label:
            return True
        return label == self.label or (self.number is not None and number_of(label) == self.number)

    def __str__(self) -> str:
        exact = self.label or (self.role.value if self.role is not None else "")
        least = f"at least {self.least}" if self.least is not None else ""
        return ", ".join(part for part in (exact, least) if part)


def read_wish(version: bytes, least: bytes) -> Wish | None:
    """The two headers; empty: not given. Raises BadRequest for what is no version."""
    if not version and not least:
        return None
    wanted = _text(version, "x-model-version")
    lowest = None
    if least:
        lowest = asked_number(_text(least, "x-model-version-min"))
        if lowest is None:
            raise BadRequest(
                "`x-model-version-min` must be the number of a version, as `7` or `v7`.",
                param="x-model-version-min",
            )
    if wanted in (Role.SERVING, Role.CANDIDATE):
        return Wish(role=Role(wanted), least=lowest)
    # A whole label means these weights and no others of the same number.
    number = asked_number(wanted) if number_of(wanted) is None else None
    return Wish(label=wanted, number=number, least=lowest)


def _text(value: bytes, header: str) -> str:
    text = value.decode("latin-1").strip()
    if len(text) > MAX_WISH or not text.isascii() or not text.isprintable() or " " in text:
        raise BadRequest(
            f"`{header}` must name a version: a number (`7`, `v7`), a label as answers carry it, "
            "`serving` or `candidate`.",
            param=header,
        )
    return text
