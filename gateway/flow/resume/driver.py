"""Finds another member for a broken stream and asks it what going on takes: where tokens end, how much fits.

The only part of it that waits, and it does so in a task of the call that it serves. Bounded: a member is
looked for no longer than LOOKS_FOR_S, each question takes no longer than ASKS_S.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gateway.fleet.member import Lease, Member
from gateway.flow.request import Request
from gateway.flow.resume.kept import Kept
from gateway.flow.resume.place import find_place
from gateway.flow.resume.produced import CannotContinue, Produced, body_of, read
from gateway.flow.resume.rejoin import Rejoined, ending
from gateway.upstream.faults import Unreachable
from gateway.upstream.fetch import fetch

if TYPE_CHECKING:
    from gateway.fleet.fleet import Fleet

LOOKS_FOR_S = 10.0
LOOKS_EVERY_S = 0.05
ASKS_S = 5.0
COMPLETIONS, CHAT = b"/v1/completions", b"/v1/chat/completions"


class Next(NamedTuple):
    """How an answer goes on."""

    request: Request | None
    """What the other member is sent; None: nothing is missing but `rest`."""
    lease: Lease | None
    rest: bytes = b""
    """Events that end it."""


async def continuation(
    fleet: Fleet, request: Request, kept: Kept, version: str, tried: tuple[str, ...]
) -> Next:
    """How the answer goes on, and on which member of the same version. Raises CannotContinue.

    On cancellation nothing is held.
    """
    chat = request.path == CHAT
    produced = read(kept, chat=chat)
    if produced.finish is not None:
        return Next(None, None, ending(produced, kept))
    lease = await _find_member(fleet, request, version, tried)
    try:
        place = await find_place(produced, lambda count: _text(lease.member, produced, count))
        room = await _room(lease.member, produced) if produced.limit is None else None
        following = replace(
            request,
            path=COMPLETIONS,
            body=body_of(produced, place.tokens, room),
            answer=Rejoined(_inner(request), kept, produced, place),
            stream=True,
        )
    except BaseException:
        lease.release()
        raise
    return Next(following, lease)


def _inner(request: Request) -> Any:
    """The client's own answer, also of one that was continued before."""
    answer = request.answer
    return answer.inner if isinstance(answer, Rejoined) else answer


async def _find_member(fleet: Fleet, request: Request, version: str, tried: tuple[str, ...]) -> Lease:
    waited = 0.0
    while waited < LOOKS_FOR_S:
        lease = fleet.lease_at(version, request.hint, request.tokens, tried)
        if lease is not None:
            return lease
        await asyncio.sleep(LOOKS_EVERY_S)
        waited += LOOKS_EVERY_S
    raise CannotContinue(f"no other engine serves version {version}")


async def _text(member: Member, produced: Produced, count: int) -> str:
    """The text of the first `count` produced tokens, as they read behind the prompt."""
    before = await _detokenized(member, produced, produced.context)
    whole = await _detokenized(member, produced, [*produced.context, *produced.ids[:count]])
    if not whole.startswith(before):
        raise CannotContinue("its tokens do not read alike on the other engine")
    return whole[len(before) :]


async def _detokenized(member: Member, produced: Produced, ids: list[int]) -> str:
    if not ids:
        return ""
    asked = {"tokens": ids}
    if produced.asked.get("model") is not None:
        asked["model"] = produced.asked["model"]
    answer = await _ask(member, "POST", "/detokenize", msgspec.json.encode(asked))
    text = answer.get("prompt")
    if not isinstance(text, str):
        raise CannotContinue("the other engine does not turn tokens into text")
    return text


async def _room(member: Member, produced: Produced) -> int | None:
    """Tokens that the member takes in all, if it says."""
    for card in (await _ask(member, "GET", "/v1/models", b"")).get("data", ()):
        length = card.get("max_model_len")
        if isinstance(length, int) and produced.asked.get("model") in (None, card.get("id")):
            return length
    return None


async def _ask(member: Member, method: str, path: str, body: bytes) -> dict[str, Any]:
    headers = [(b"content-type", b"application/json"), *member.authorization]
    try:
        answer = await fetch(member.pool, method, path, timeout_s=ASKS_S, headers=headers, body=body)
        found = msgspec.json.decode(answer.body)
    except (TimeoutError, Unreachable, msgspec.DecodeError) as error:
        raise CannotContinue(f"the other engine does not answer {path}") from error
    if answer.status != 200 or not isinstance(found, dict):
        raise CannotContinue(f"the other engine answered {path} with {answer.status}")
    return found
