"""Which options take effect on reload and which need a restart: the one place that says so. Pure.

An entry is an option's key or the key of everything below it; the longest that matches decides. A new option
that matches none fails a test, so that nobody adds one without deciding.
"""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase


class Effect(StrEnum):
    RELOAD = "reload"
    RESTART = "restart"


_RESTART = (
    # bound once, shared by workers
    "server.host",
    "server.port",
    "server.workers",
    "server.keep_alive_s",
    "server.max_connections",
    "server.header_timeout_s",
    "server.cors",
    # processes of their own
    "engine",
    "checkpoints",
    # models come and go with their metrics and their queues
    "models",
    # built once, when the process starts
    "rollout.lease",
    "admin",
    "auth.quotas",
    "cache",
    "logging",
    "telemetry",
    "run_dir",
)
_RELOAD = (
    "server.max_body_bytes",
    "server.settle_s",
    "server.drain_s",
    "endpoints",
    "models.*.endpoints",
    "models.*.routing",
    "models.*.limits",
    "routing",
    "limits",
    "timeouts",
    "health",
    "retries",
    "auth",
    "batching",
    "rollout",
)
EFFECTS = dict.fromkeys(_RESTART, Effect.RESTART) | dict.fromkeys(_RELOAD, Effect.RELOAD)


def effect_of(key: str) -> Effect:
    """What a change of the option `key` (`models.*.name`) needs. KeyError: nobody classified it."""
    matching = [entry for entry in EFFECTS if _covers(entry, key)]
    if not matching:
        raise KeyError(key)
    return EFFECTS[max(matching, key=len)]


def _covers(entry: str, key: str) -> bool:
    return fnmatchcase(key, entry) or key.startswith(f"{entry}.")
