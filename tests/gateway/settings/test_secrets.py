"""Secrets stay secret: in messages, in representations, in what `check` prints, in what a reload logs."""

from __future__ import annotations

import traceback

import pytest

from gateway.settings.diff import diff
from gateway.settings.explain import explain_json, explain_text
from gateway.settings.problems import SettingsError
from gateway.settings.tree import Settings
from tests.gateway.settings.conftest import LoadText

SECRET = "hunter2-is-my-secret"

GOOD = f"""\
admin: {{token: {SECRET}}}
endpoints: [{{url: http://a:1, api_key: {SECRET}}}]
cache: {{url: 'redis://user:{SECRET}@host'}}
engine:
  env: {{HF_TOKEN: {SECRET}, OMP_NUM_THREADS: '2'}}
  extra_args: [--seed, '7', --api-key, {SECRET}, '--hf-token={SECRET}']
telemetry: {{otlp_endpoint: 'http://user:{SECRET}@collector:4318'}}
"""

BAD = [
    f"admin: {SECRET}\n",
    f"admin: {{token: ['{SECRET}']}}\n",
    f"admin: {{tokn: {SECRET}}}\n",
    f"admin: {{token: '{SECRET} '}}\n",
    f"admin: {{token: {SECRET}\n",
    f"admin: token: {SECRET}\n",
    f"auth: {{keys: [{{name: a, sha256: {SECRET}}}]}}\n",
    f"auth: {{keys: {SECRET}}}\n",
    f"endpoints: ['https://user:{SECRET}@a:1']\n",
    f"cache: {{url: 'http://user:{SECRET}@host'}}\n",
    f"cache: {{url: 'redis://user:{SECRET}@[host'}}\n",
    f"engine: {{env: {{API_KEY: [{SECRET}]}}}}\n",
    "server: {port: '${PASSWORD}'}\n",
    "cache: {type: '${PASSWORD}'}\n",
    "engine: {extra_args: '${PASSWORD}'}\n",
    "admin: {token: '${PASSWORD} '}\n",
    "admin: {token: '${PASSWORD:" + SECRET + "} '}\n",
    "admin: {token: '${PASS:${PASSWORD}}'}\n",
]


@pytest.mark.parametrize("text", BAD)
def test_no_message_repeats_a_secret(load_text: LoadText, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(text, {"PASSWORD": SECRET})
    shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value.problems)
    assert SECRET not in shown


def test_no_message_repeats_a_secret_from_a_variable_or_a_flag(load_text: LoadText) -> None:
    with pytest.raises(SettingsError) as caught:
        load_text(
            "",
            {"CHANGEOVER_ADMIN__TOKEN": f"{SECRET} ", "CHANGEOVER_ADMIN_TOKEN": SECRET},
            {"cache.url": f"x://{SECRET}", "admin.tokn": SECRET},
        )
    assert len(caught.value.problems) == 4
    assert SECRET not in str(caught.value)


def test_neither_settings_nor_explanation_show_a_secret(load_text: LoadText) -> None:
    loaded = load_text(GOOD)
    assert SECRET not in explain_text(loaded)
    assert SECRET not in explain_json(loaded).decode()
    assert '"OMP_NUM_THREADS":"2"' in explain_text(loaded)


def test_a_changed_secret_is_a_change_that_is_shown_masked(load_text: LoadText) -> None:
    loaded = load_text(GOOD)
    other = load_text(GOOD.replace(SECRET, "another"))
    changes = diff(loaded.settings, other.settings)
    assert {change.key for change in changes.changes} == {
        "admin.token",
        "endpoints[http://a:1].api_key",
        "cache.url",
        "engine.env",
        "engine.extra_args",
        "telemetry.otlp_endpoint",
    }
    assert SECRET not in "\n".join(str(change) for change in changes.changes)
    assert SECRET not in repr(changes)


def test_pydantic_itself_does_not_repeat_what_it_was_given() -> None:
    with pytest.raises(ValueError, match="admin") as caught:
        Settings.model_validate({"admin": {"token": [SECRET]}})
    assert SECRET not in str(caught.value)
