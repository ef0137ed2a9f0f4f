"""Every routing policy by its name in the settings: a new one is one line more here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gateway.routing.contract import Policy
from gateway.routing.least_load import least_load
from gateway.routing.power_of_two import power_of_two
from gateway.routing.prefix import prefix
from gateway.routing.round_robin import round_robin
from gateway.routing.session import session
from gateway.settings.tree import PolicyName

POLICIES: Mapping[PolicyName, Policy] = MappingProxyType(
    {
        PolicyName.ROUND_ROBIN: round_robin,
        PolicyName.LEAST_LOAD: least_load,
        PolicyName.POWER_OF_TWO: power_of_two,
        PolicyName.PREFIX: prefix,
        PolicyName.SESSION: session,
    }
)
