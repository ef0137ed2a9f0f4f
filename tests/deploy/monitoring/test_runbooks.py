"""What the pages for operators say can be done: commands and options exist, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deploy.checks.rules import ROOT, RUNBOOKS, read_rules
from gateway.cli import COMMANDS
from gateway.cli.lazy import build
from gateway.settings.options import options

OPERATIONS = ROOT / "docs" / "operations.md"
PAGES = [*sorted(RUNBOOKS.glob("*.md")), OPERATIONS]
COMMAND = re.compile(r"`changeover ([a-z]+(?: [a-z]+)*)((?: --[a-z]+)?)")
SECTIONS = "admin|auth|cache|engine|limits|retries|rollout|routing|server|timeouts"
OPTION = re.compile(rf"`((?:{SECTIONS})\.[a-z_.*]*[a-z_])[`:]")
LINK = re.compile(r"\]\(([^)#]+)")


def by_name(page: Path) -> str:
    return page.stem


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_the_commands_of_a_page_exist(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in {match[1] for match in COMMAND.finditer(page.read_text())}:
        with pytest.raises(SystemExit) as ended:
            build(COMMANDS)([*words.split(), "--help"], prog_name="changeover")
        assert ended.value.code == 0, f"changeover {words}: {capsys.readouterr().err}"


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_the_options_of_a_page_exist(page: Path) -> None:
    known = {option.key for option in options()}
    named = {match[1] for match in OPTION.finditer(page.read_text())}

    assert named <= known, sorted(named - known)


@pytest.mark.parametrize("page", PAGES, ids=by_name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    gone = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert not gone


def test_operations_lists_every_alert_with_how_urgent_it_is() -> None:
    text = OPERATIONS.read_text()
    for alert in (rule for rule in read_rules() if rule.alert):
        page = Path(alert.annotations["runbook"]).name
        assert f"| [{alert.name}](runbooks/{page}) | {alert.labels['severity']} |" in text


def test_commands_and_options_are_found_on_pages_at_all() -> None:
    whole = "".join(page.read_text() for page in PAGES)

    assert len(set(COMMAND.findall(whole))) > 8
    assert len(set(OPTION.findall(whole))) > 15
