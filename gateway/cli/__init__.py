"""The command `changeover`: its sub-commands by name, each imported only when it is run.

So `changeover --help` is quick, and `changeover publish` works where no web framework is installed. A command
is a function in a module of this package, or a typer app there that holds a command of that name.
"""

from __future__ import annotations

from gateway.cli.lazy import Command, build

COMMANDS = (
    Command("serve", "gateway.cli.serve", "serve", "Start engines and the gateway on this machine."),
    Command(
        "gateway", "gateway.cli.gateway", "gateway", "Run the gateway in front of engines that run elsewhere."
    ),
    Command(
        "backend", "gateway.cli.backend", "backend", "Keep one engine: start, watch, restart and end it."
    ),
    Command(
        "check",
        "gateway.cli.check",
        "check",
        "Show the resolved configuration, or all that is wrong with it.",
    ),
    Command(
        "doctor",
        "gateway.cli.doctor",
        "doctor",
        "Look for what goes wrong in practice, and say how to mend it.",
    ),
    Command("status", "gateway.cli.status", "status", "Show members, versions, load, QPS and latency, live."),
    Command("cache", "gateway.cli.cache", "app", "See and clear the kept answers."),
    Command("rollout", "gateway.cli.rollout", "app", "Begin, watch and steer how a version comes to serve."),
    Command("publish", "gateway.cli.checkpoints", "app", "Publish a checkpoint into a store."),
    Command("checkpoints", "gateway.cli.checkpoints", "app", "List and manage the checkpoints of a store."),
    Command(
        "qualify",
        "gateway.cli.qualify",
        "qualify",
        "Show whether weights may be changed in a running engine here.",
    ),
    Command("verify", "gateway.cli.checkpoints", "app", "Check a checkpoint without an engine."),
)


def main() -> None:
    """Entry point of the distribution's script."""
    build(COMMANDS)(prog_name="changeover")
