"""Processes that must not outlive whoever started them: real ones, killed in every way."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends import leash
from backends.leash import leashed

LONG_S = 30


class Tree:
    """A command on a leash. Every process below it holds the pipe open, so its end shows them gone."""

    def __init__(self, code: str, *, grace_s: float = LONG_S) -> None:
        self.process = subprocess.Popen(
            leashed((sys.executable, "-c", textwrap.dedent(code)), grace_s=grace_s),
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def line(self) -> str:
        """The next line it prints."""
        return self.output.readline().decode().strip()

    def all_gone(self) -> bool:
        """Whether every process of the tree ends within the limit."""
        while select.select([self.output], [], [], LONG_S)[0]:
            if not self.output.read1(4096):  # type: ignore[attr-defined]
                return True
        return False

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
        self.process.wait(LONG_S)
        self.output.close()


@pytest.fixture
def trees() -> Iterator[list[Tree]]:
    started: list[Tree] = []
    yield started
    for tree in started:
        tree.close()


GRANDCHILDREN = """
    import os, signal, subprocess, sys, time
    signal.signal(signal.SIGTERM, {on_term})
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", deaf])
    subprocess.Popen([sys.executable, "-c", deaf], start_new_session=True)
    print(os.getpid(), flush=True)
    time.sleep(600)
"""


def test_the_exit_code_is_the_commands() -> None:
    tree = Tree("raise SystemExit(7)")

    assert tree.process.wait(LONG_S) == 7
    tree.close()


def test_a_command_killed_by_a_signal_is_reported_as_a_shell_does() -> None:
    tree = Tree("import os; os.kill(os.getpid(), 9)")

    assert tree.process.wait(LONG_S) == 128 + 9
    tree.close()


def test_a_command_that_does_not_exist_is_a_sentence_not_a_trace() -> None:
    done = subprocess.run(
        leashed(("/nowhere/vllm",), grace_s=1), capture_output=True, text=True, timeout=LONG_S, check=False
    )

    assert done.returncode == 127
    assert done.stderr == "cannot run /nowhere/vllm: No such file or directory\n"


def test_what_a_killed_command_leaves_is_killed_sessions_of_their_own_included(trees: list[Tree]) -> None:
    tree = Tree(GRANDCHILDREN.format(on_term="signal.SIG_DFL"))
    trees.append(tree)
    os.kill(int(tree.line()), signal.SIGKILL)

    assert tree.all_gone()
    assert tree.process.wait(LONG_S) == 128 + 9


def test_sigterm_lets_the_command_end_in_order_and_then_takes_the_rest(trees: list[Tree]) -> None:
    tree = Tree(GRANDCHILDREN.format(on_term="lambda *_: (print('in order', flush=True), os._exit(3))"))
    trees.append(tree)
    tree.line()
    tree.process.send_signal(signal.SIGTERM)

    assert tree.line() == "in order"
    assert tree.all_gone()
    assert tree.process.wait(LONG_S) == 3


def test_a_command_that_does_not_end_is_killed_after_the_grace(trees: list[Tree]) -> None:
    tree = Tree(GRANDCHILDREN.format(on_term="signal.SIG_IGN"), grace_s=0.2)
    trees.append(tree)
    tree.line()
    tree.process.send_signal(signal.SIGTERM)

    assert tree.all_gone()
    assert tree.process.wait(LONG_S) == 128 + 9


def test_sigquit_kills_everything_without_grace(trees: list[Tree]) -> None:
    tree = Tree(GRANDCHILDREN.format(on_term="signal.SIG_IGN"), grace_s=600)
    trees.append(tree)
    tree.line()
    tree.process.send_signal(signal.SIGQUIT)

    assert tree.all_gone()


def test_nothing_survives_when_the_one_who_started_it_is_killed() -> None:
    inner = textwrap.dedent(GRANDCHILDREN.format(on_term="signal.SIG_DFL"))
    outer = (
        f"import sys, time, subprocess; sys.path.insert(0, {str(Path(leash.__file__).parents[1])!r})\n"
        "from backends.leash import leashed\n"
        f"subprocess.Popen(leashed((sys.executable, '-c', {inner!r}), grace_s=5), start_new_session=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE)
    assert starter.stdout is not None
    starter.stdout.readline()
    starter.kill()
    starter.wait(LONG_S)

    assert select.select([starter.stdout], [], [], LONG_S)[0], "something still holds the pipe"
    assert starter.stdout.read() == b""
    starter.stdout.close()
