"""One request in order: validate, quota, then cache, join and batch where they apply; admit, call, account.

Straight-line code, synchronous: what has to wait continues in a callback of `call`. Whatever goes wrong
before a call exists is answered and accounted for here; afterwards the call does that itself, once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from gateway.errors import ClientGone, GatewayError, Internal, OverQuota
from gateway.flow import quota
from gateway.flow.account import Account
from gateway.flow.call import Call
from gateway.flow.quota_redis import RedisQuota
from gateway.flow.record import Record
from gateway.flow.request import Request
from gateway.flow.service import Service
from gateway.flow.services import Services
from gateway.flow.sharing import Sharing
from gateway.http.exchange import Exchange
from gateway.observe.labels import OTHER_MODEL, Refusal
from gateway.observe.metrics import Metrics
from gateway.tasks import TaskOwner

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
    shared_quotas: RedisQuota | None
    """Where keys are counted for all gateways together."""
    tasks: TaskOwner

    def handle(self, exchange: Exchange) -> None:
        """A request is whole. Never raises."""
        now = monotonic()
        try:
            request = self.read(exchange)
            service = self.services.find(request.model)
            if request.wish is not None or service.fleet.split is not None:
                service.aim(request, exchange)
            exchange.drop_body()
            if request.key is not None and self.shared_quotas is not None:
                asking = self._ask_quota(self.shared_quotas, service, exchange, request, now)
                self.tasks.start("quota", asking)
                return
            grant = self._take_quota(service, request, now) if request.key is not None else None
            self._send_on(service, exchange, request, grant, now)
        except GatewayError as error:
            self.refuse(exchange, error, now)
        except Exception:
            logger.exception("A request failed inside the gateway")
            self.refuse(exchange, Internal("The gateway failed; its log says how."), now)

    def _send_on(
        self,
        service: Service,
        exchange: Exchange,
        request: Request,
        grant: quota.Grant | None,
        now: float,
    ) -> None:
        if request.reuse is None and request.batch is None:
            service.submit(Call(service, exchange, request, grant, now), now)
        else:
            self.sharing.take(service, exchange, request, grant, now)

    def _take_quota(self, service: Service, request: Request, now: float) -> quota.Grant:
        assert request.key is not None
        return self._granted(service, self.quotas.take(request.key.name, request.tokens, now))

    async def _ask_quota(
        self, quotas: RedisQuota, service: Service, exchange: Exchange, request: Request, now: float
    ) -> None:
        """The same where keys are counted in Redis: the one step that every such request has to wait for."""
        assert request.key is not None
        try:
            granted = await quotas.take(request.key, request.tokens, now)
            grant = self._granted(service, granted)
            if exchange.disconnected:
                grant.cancel(monotonic())
                raise ClientGone("The client has gone.")
            self._send_on(service, exchange, request, grant, now)
        except GatewayError as error:
            self.refuse(exchange, error, now)

    def _granted(self, service: Service, granted: quota.Grant | quota.OverQuota) -> quota.Grant:
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
