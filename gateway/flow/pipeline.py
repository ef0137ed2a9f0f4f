"""One request in order: validate, quota, then cache, join and batch where they apply; admit, call, account.

Straight-line code, synchronous: what has to wait continues in a callback of `call`. Whatever goes wrong
before a call exists is answered and accounted for here; afterwards the call does that itself, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from gateway.errors import GatewayError, Internal, OverQuota
from gateway.flow import quota
from gateway.flow.account import Account
from gateway.flow.call import Call
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.flow.service import Service
from gateway.flow.services import Services
from gateway.flow.sharing import Sharing
from gateway.http.exchange import Exchange
from gateway.observe.labels import OTHER_MODEL, Refusal
from gateway.observe.metrics import Metrics

logger = logging.getLogger(__name__)

_QUOTA_LABELS = {
    quota.Limit.REQUESTS: Refusal.REQUEST_RATE,
    quota.Limit.TOKENS: Refusal.TOKENS_PER_MINUTE,
    quota.Limit.IN_FLIGHT: Refusal.CONCURRENCY,
}


@dataclass(slots=True)
class Pipeline:
    """The way of every hot request of one worker."""

    read: Callable[[Exchange], Request]
    """Validates. Raises GatewayError."""
    services: Services
    quotas: quota.LocalQuota
    account: Account
    metrics: Metrics
    sharing: Sharing

    def handle(self, exchange: Exchange) -> None:
        """A request is whole. Never raises."""
        now = monotonic()
        try:
            request = self.read(exchange)
            service = self.services.find(request.model)
            grant = self._take_quota(service, request, now) if request.key is not None else None
            exchange.drop_body()
            if request.reuse is None and request.batch is None:
                service.submit(Call(service, exchange, request, grant, now), now)
            else:
                self.sharing.take(service, exchange, request, grant, now)
        except GatewayError as error:
            self.refuse(exchange, error, now)
        except Exception:
            logger.exception("A request failed inside the gateway")
            self.refuse(exchange, Internal("The gateway failed; its log says how."), now)

    def _take_quota(self, service: Service, request: Request, now: float) -> quota.Grant:
        assert request.key is not None
        granted = self.quotas.take(request.key.name, request.tokens, now)
        if isinstance(granted, quota.Grant):
            return granted
        service.series.refused.add(_QUOTA_LABELS[granted.limit])
        sentence = f"Your API key has used up its {granted.limit.value.replace('_', ' ')}."
        raise OverQuota(sentence, retry_after_s=granted.retry_after_s)

    def refuse(self, exchange: Exchange, error: GatewayError, now: float | None = None) -> None:
        """Answer a request that got no call."""
        began = monotonic() if now is None else now
        record = Record(exchange.route.name, OTHER_MODEL, began)
        record.status = error.status
        record.outcome = error.outcome
        record.error = error.message
        series = self.metrics.request_series(OTHER_MODEL, record.route)
        series.begin()
        exchange.fail(error)
        record.ended = monotonic()
        self.account.close(series, record, exchange)
