"""What of all that a fake engine has seen came from clients: not the probes."""

from __future__ import annotations

from backends.fake import Fake, Request

PROBES = frozenset({"/health", "/metrics", "/v1/models", "/version", "/load"})


def asked(fake: Fake) -> list[Request]:
    """The requests of clients, oldest first."""
    return [request for request in fake.stats.seen if request.path not in PROBES]


def last(fake: Fake) -> Request:
    """The latest of them."""
    return asked(fake)[-1]
