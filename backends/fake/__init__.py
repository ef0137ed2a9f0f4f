"""A fake vLLM engine: a real HTTP server on a real socket whose behaviours are data.

In a test: `async with Fake.start(Behaviour(tokens_per_s=50)) as fake`. As a process:
`python -m backends.fake --port N`. `FakeAgent` (`backends.fake.agent`) swaps its weights. It imports
nothing of the gateway.
"""

from backends.fake.behaviour import Answer, Behaviour, Cut, Ending, Framing, LineEnd, Pieces, Point, Rule, Say
from backends.fake.record import Gone, Record, Request
from backends.fake.server import Fake

__all__ = [
    "Answer",
    "Behaviour",
    "Cut",
    "Ending",
    "Fake",
    "Framing",
    "Gone",
    "LineEnd",
    "Pieces",
    "Point",
    "Record",
    "Request",
    "Rule",
    "Say",
]
