"""What loads, and where the values are said to come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.settings.load import load
from gateway.settings.origin import Source
from gateway.settings.problems import SettingsError
from gateway.settings.tree import CacheType, PolicyName, Settings
from tests.gateway.settings.conftest import LoadText

SERVING_FILE_OF_THE_GUIDES = """\
engine: {type: VLLM, max_batch_size: 32}
cache: {type: Redis, host: 127.0.0.1, port: 6379}
"""


def test_the_plain_form_of_the_guides_loads_as_it_stands(load_text: LoadText) -> None:
    settings = load_text(SERVING_FILE_OF_THE_GUIDES).settings
    assert settings.engine.max_batch_size == 32
    assert settings.cache.type is CacheType.REDIS
    assert (settings.cache.host, settings.cache.port) == ("127.0.0.1", 6379)


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "null\n", "{}\n"])
def test_an_empty_file_is_all_defaults(load_text: LoadText, text: str) -> None:
    assert load_text(text).settings == Settings()


def test_sections_with_everything_commented_out_are_empty(load_text: LoadText) -> None:
    loaded = load_text("server:\n  # port: 1\nendpoints:\nlimits:\nengine:\n  env:\n")
    assert loaded.settings == Settings()


def test_numbers_are_read_as_yaml_1_2(load_text: LoadText) -> None:
    settings = load_text(
        "cache: {ttl_s: 5e-5, timeout_s: 1e2}\nserver: {port: 0o17, workers: 0x4}\n"
    ).settings
    assert settings.cache.ttl_s == 5e-5
    assert settings.cache.timeout_s == 100
    assert (settings.server.port, settings.server.workers) == (15, 4)


def test_off_is_text_and_not_false(load_text: LoadText) -> None:
    assert load_text("cache: {type: off}\n").settings.cache.type is CacheType.OFF


def test_case_does_not_matter_where_a_choice_is_made(load_text: LoadText) -> None:
    settings = load_text("routing: {policy: Round_Robin}\nlogging: {level: WARNING, format: JSON}\n").settings
    assert settings.routing.policy is PolicyName.ROUND_ROBIN
    assert (settings.logging.level, settings.logging.format) == ("warning", "json")


def test_an_alias_may_be_merged(load_text: LoadText) -> None:
    settings = load_text(
        """\
        models:
          - &first {name: a, endpoints: [http://a:1], limits: {max_queued: 7}}
          - {<<: *first, name: b}
        """
    ).settings
    assert [model.name for model in settings.models] == ["a", "b"]
    assert [model.limits.max_queued for model in settings.models if model.limits] == [7, 7]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_understood(load_text: LoadText, encoding: str) -> None:
    assert load_text("server: {port: 81}\n".encode(encoding)).settings.server.port == 81


def test_windows_line_ends_are_understood(load_text: LoadText) -> None:
    loaded = load_text(b"server:\r\n  port: 81\r\n")
    assert loaded.origins["server.port"].line == 2


def test_endpoints_are_written_in_one_way(load_text: LoadText) -> None:
    loaded = load_text(
        "endpoints: ['a:1', 'http://b:2/', 'unix:///run/e.sock', 'dns://c:3', 'http://[::1]:4']\n"
    )
    urls = [endpoint.url for endpoint in loaded.settings.endpoints]
    assert urls == ["http://a:1", "http://b:2", "unix:/run/e.sock", "dns://c:3", "http://[::1]:4"]


def test_environment_overrides_the_file_and_flags_override_both(load_text: LoadText) -> None:
    loaded = load_text(
        "server: {port: 1, workers: 2, host: a}\n",
        {"CHANGEOVER_SERVER__WORKERS": "3", "CHANGEOVER_SERVER__HOST": "b"},
        {"server.host": "c"},
    )
    server = loaded.settings.server
    assert (server.port, server.workers, server.host) == (1, 3, "c")
    assert [str(loaded.origins[f"server.{key}"]) for key in ("port", "workers", "host", "settle_s")] == [
        "infer.yaml:1",
        "environment CHANGEOVER_SERVER__WORKERS",
        "flag --set server.host",
        "default",
    ]


def test_text_from_the_environment_is_typed_as_the_option_wants(load_text: LoadText) -> None:
    environment = {
        "CHANGEOVER_ENGINE__SERVED_NAME": "123",
        "CHANGEOVER_ENGINE__EAGER": "false",
        "CHANGEOVER_ENGINE__EXTRA_ARGS": '["--seed", "7"]',
        "CHANGEOVER_ENGINE__ENV__OMP_NUM_THREADS": "4",
        "CHANGEOVER_ENGINE__MAX_MODEL_LEN": "",
        "CHANGEOVER_ENDPOINTS": "[http://a:1, {url: 'http://b:2', weight: 2}]",
        "CHANGEOVER_ENDPOINTS__1__WEIGHT": "3",
    }
    settings = load_text("engine: {max_model_len: 99}\n", environment).settings
    assert settings.engine.served_name == "123"
    assert settings.engine.eager is False
    assert settings.engine.extra_args == ("--seed", "7")
    assert settings.engine.env == {"OMP_NUM_THREADS": "4"}
    assert settings.engine.max_model_len is None
    assert [endpoint.weight for endpoint in settings.endpoints] == [1, 3]


def test_a_mapping_from_the_environment_takes_the_place_of_the_whole(load_text: LoadText) -> None:
    settings = load_text("cache: {host: a, port: 1}\n", {"CHANGEOVER_CACHE": '{"type": "redis"}'}).settings
    assert (settings.cache.type, settings.cache.host, settings.cache.port) == ("redis", "127.0.0.1", 6379)


def test_an_element_of_a_list_can_be_overridden(load_text: LoadText) -> None:
    text = "models:\n  - {name: a, endpoints: [http://a:1]}\n"
    loaded = load_text(text, {}, {"models.0.limits.max_queued": "5", "models.0.name": "b"})
    [model] = loaded.settings.models
    assert model.limits is not None
    assert (model.name, model.limits.max_queued) == ("b", 5)
    assert loaded.origins["models.0.endpoints.0.url"].source is Source.FILE


def test_variables_that_are_no_settings_are_left_alone(load_text: LoadText) -> None:
    environment = {
        "CHANGEOVER_GUARD_TOKEN": "x",
        "CHANGEOVER_CACHE_DIR": "x",
        "CHANGEOVER_SOMETHING_ELSE_ENTIRELY": "x",
        "PATH": "/bin",
    }
    assert load_text("", environment).settings == Settings()


def test_variables_that_kubernetes_sets_for_a_service_are_left_alone(load_text: LoadText) -> None:
    environment = {
        "CHANGEOVER_SERVICE_HOST": "10.0.0.1",
        "CHANGEOVER_SERVICE_PORT": "80",
        "CHANGEOVER_SERVICE_PORT_HTTP": "80",
        "CHANGEOVER_PORT": "tcp://10.0.0.1:80",
        "CHANGEOVER_PORT_80_TCP": "tcp://10.0.0.1:80",
        "CHANGEOVER_PORT_80_TCP_ADDR": "10.0.0.1",
        "CHANGEOVER_SERVER_PORT_80_TCP_PORT": "80",
    }
    assert load_text("", environment).settings == Settings()


def test_the_file_is_found_by_argument_then_variable_then_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load(None, environment={}).path is None
    for port, name in enumerate(["infer_config.yaml", "by_variable.yaml", "by_argument.yaml"], start=1):
        Path(name).write_text(f"server: {{port: {port}}}\n")
    by_variable = {"CHANGEOVER_CONFIG": "by_variable.yaml"}
    assert load(None, environment={}).settings.server.port == 1
    assert load(None, environment=by_variable).settings.server.port == 2
    found = load(Path("by_argument.yaml"), environment=by_variable)
    assert found.settings.server.port == 3
    assert found.path == tmp_path / "by_argument.yaml"


def test_a_link_to_the_file_is_kept_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("server: {port: 1}\n")
    link = tmp_path / "link.yaml"
    link.symlink_to("real.yaml")
    assert load(link, environment={}).path == link


@pytest.mark.parametrize("name", ["absent.yaml", "."])
def test_a_file_that_cannot_be_read_is_one_clear_problem(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path / name, environment={})
    [problem] = caught.value.problems
    assert problem.what.startswith("cannot be read: ")
    assert problem.file == str(tmp_path / name)
