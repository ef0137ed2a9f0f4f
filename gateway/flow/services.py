"""The models of this gateway by name, and which of them a request means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gateway.errors import ModelNotFound
from gateway.flow.service import Service


class Services:
    """In the order of the configuration; the first is the default."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = list(services)
        self._by_name: dict[str, Service] = {}
        self.learn()

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services)

    def replace(self, services: Sequence[Service]) -> None:
        self._services = list(services)
        self.learn()

    def learn(self) -> None:
        """Members have said which names they answer to (adapters among them)."""
        self._by_name = {}
        for service in reversed(self._services):
            service.fleet.on_names = self.learn
            self._by_name |= dict.fromkeys(service.fleet.names, service)
        # A configured name is never taken over by what another model's engine calls itself.
        self._by_name |= {service.name: service for service in self._services}

    @property
    def names(self) -> list[str]:
        """Names that some engine answers to; a model none of whose engines has said so goes by its own."""
        listed = (service.fleet.learnt_names or {service.name} for service in self._services)
        return sorted(set().union(*listed))

    def versions_of(self, name: str) -> list[str]:
        """The weights that answer to one of `names` now."""
        found = self._by_name.get(name)
        return found.fleet.versions if found is not None else []

    def find(self, model: str) -> Service:
        """The service for a model's name; empty: the default. Raises ModelNotFound.

        With one model only, a name that is unknown here goes to its engines: they may know it.
        """
        found = self._by_name.get(model)
        if found is not None:
            return found
        if not self._services:
            raise ModelNotFound("No model is configured here.")
        if not model or len(self._services) == 1:
            return self._services[0]
        known = ", ".join(self.names[:20])
        raise ModelNotFound(f"There is no model {model[:200]!r} here. Known: {known}.", param="model")
