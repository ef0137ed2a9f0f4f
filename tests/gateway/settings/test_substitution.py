"""`${NAME}` and `${NAME:default}`."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.settings.substitution import SubstitutionError, substitute
from tests.gateway.settings.conftest import LoadText

names = st.text(string.ascii_letters + "_", min_size=1).flatmap(
    lambda head: st.text(string.ascii_letters + string.digits + "_").map(lambda tail: head + tail)
)
plain = st.text(st.characters(exclude_characters="$"))
values = st.text()


@given(names, values, plain, plain)
def test_a_name_is_replaced_by_its_value_and_the_rest_stays(
    name: str, value: str, left: str, right: str
) -> None:
    done = substitute(f"{left}${{{name}}}{right}", {name: value})
    assert done.text == left + value + right
    assert done.variables == (name,)
    assert done.whole == (not left and not right)


@given(names, plain.filter(lambda text: "}" not in text), st.none() | values)
def test_a_default_stands_in_for_what_is_not_set(name: str, default: str, value: str | None) -> None:
    environment = {} if value is None else {name: value}
    assert substitute(f"${{{name}:{default}}}", environment).text == (default if value is None else value)


@given(names)
def test_a_name_without_value_and_default_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(SubstitutionError, match=name):
        substitute(f"a${{{name}}}", {})


@given(st.text())
def test_text_can_be_escaped_to_stay_what_it_is(text: str) -> None:
    escaped = text.replace("${", "$${")
    if "$$${" not in escaped:  # a dollar before an escape is read as part of it
        assert substitute(escaped, {}).text == text


@given(names, values)
def test_what_was_substituted_is_not_searched_again(name: str, value: str) -> None:
    assert substitute(f"${{{name}}}", {name: f"${{{value}"}).text == f"${{{value}"


def test_dollars_that_begin_nothing_stay() -> None:
    assert substitute("a$ $$ $NAME {x} $${NAME}", {}).text == "a$ $$ $NAME {x} ${NAME}"


def test_a_whole_substitution_is_typed_as_the_option_wants(load_text: LoadText) -> None:
    environment = {
        "PORT": "81",
        "NAME": "123",
        "EAGER": "false",
        "URLS": "[http://a:1, http://b:2]",
        "NONE": "",
    }
    loaded = load_text(
        """\
server: {port: "${PORT}", host: "10.0.0.${LAST:7}", workers: '${WORKERS:2}'}
engine: {served_name: "${NAME}", eager: "${EAGER}", max_model_len: "${NONE}"}
endpoints: "${URLS}"
admin:
  token: ${TOKEN:}  # ${NOT_LOOKED_UP}
""",
        environment,
    )
    settings = loaded.settings
    assert (settings.server.port, settings.server.host, settings.server.workers) == (81, "10.0.0.7", 2)
    assert (settings.engine.served_name, settings.engine.eager) == ("123", False)
    assert settings.engine.max_model_len is None
    assert [endpoint.url for endpoint in settings.endpoints] == ["http://a:1", "http://b:2"]
    assert settings.admin.token is None
    assert str(loaded.origins["server.port"]) == "infer.yaml:1 ${PORT}"
