"""Settings: which source counts, and what is said about a wrong one."""

import json
import re
import tomllib
from pathlib import Path

import attrs
import pytest

from octopi.cli.config import (
    SECTIONS,
    BrokerSettings,
    ClientSettings,
    Configuration,
    RegisterSettings,
)
from octopi.cli.setting_checks import SettingsError
from tests.cli.conftest import Program


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return file


def test_without_any_source_the_defaults_hold() -> None:
    assert Configuration(None, {}).section(ClientSettings) == ClientSettings()


def test_a_file_overrides_the_default(tmp_path: Path) -> None:
    file = written(tmp_path, '[client]\nserver = "ws://file:1"\ntimeout_s = 2\n')
    settings = Configuration(file, {}).section(ClientSettings)
    assert settings == ClientSettings("ws://file:1", 2.0)


def test_the_environment_overrides_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[client]\nserver = "ws://file:1"\n')
    settings = Configuration(file, {"OCTOPI_SERVER": "ws://variable:1"}).section(ClientSettings)
    assert settings.server == "ws://variable:1"


def test_a_flag_overrides_the_environment() -> None:
    configuration = Configuration(None, {"OCTOPI_SERVER": "ws://variable:1"})
    assert configuration.section(ClientSettings, server="ws://flag:1").server == "ws://flag:1"


def test_a_flag_that_was_not_given_overrides_nothing() -> None:
    configuration = Configuration(None, {"OCTOPI_SERVER": "ws://variable:1"})
    assert configuration.section(ClientSettings, server=None).server == "ws://variable:1"


def test_octopi_toml_of_the_current_directory_is_read(tmp_path: Path) -> None:
    (tmp_path / "octopi.toml").write_text("[register]\npartitions = 3\n")  # cwd is tmp_path
    assert Configuration(None, {}).section(RegisterSettings).partitions == 3


def test_an_optional_number_is_read_from_the_environment() -> None:
    assert Configuration(None, {"OCTOPI_ID": "7"}).section(BrokerSettings).id == 7


def test_replicas_come_from_the_file_the_environment_and_the_flag(tmp_path: Path) -> None:
    file = written(tmp_path, "[register]\nreplicas = 2\n")
    assert Configuration(None, {}).section(RegisterSettings).replicas == 3
    assert Configuration(file, {}).section(RegisterSettings).replicas == 2
    configuration = Configuration(file, {"OCTOPI_REPLICAS": "4"})
    assert configuration.section(RegisterSettings).replicas == 4
    assert configuration.section(RegisterSettings, replicas=5).replicas == 5
    with pytest.raises(SettingsError, match="--replicas has to be at least 1, not 0"):
        configuration.section(RegisterSettings, replicas=0)


def test_both_roles_read_the_same_variable() -> None:
    configuration = Configuration(None, {"OCTOPI_DATA_DIR": "/data"})
    assert configuration.section(BrokerSettings).data_dir == "/data"
    assert configuration.section(RegisterSettings).data_dir == "/data"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[client]\nsevrer = 'x'", "no setting client.sevrer; did you mean server?"),
        ("[client]\nzzz = 1", "no setting client.zzz; there are server, timeout_s, retry_s"),
        ("[clinet]\n", "no section [clinet]; did you mean client?"),
        ("client = 1", "client is a section"),
        ("[client]\nserver = 1", "client.server has to be a text, not 1"),
        ("[client]\ntimeout_s = '3'", "client.timeout_s has to be a number, not '3'"),
        ("[client]\ntimeout_s = true", "client.timeout_s has to be a number, not True"),
        (
            "[client]\ntimeout_s = inf",
            "client.timeout_s has to be at most 9223372036854775807, not inf",
        ),
        pytest.param("[broker]\nid = 1" + "0" * 400, "broker.id has to be at most", id="large"),
        pytest.param("[broker]\nid = -1" + "0" * 400, "with very many digits", id="small"),
        pytest.param("[broker]\nid = 1" + "0" * 5000, "is not valid TOML", id="5,000 digits"),
        pytest.param("[broker]\nid = " + "[" * 5000, "it is nested too deep", id="deep lists"),
        pytest.param("[broker]\nid = " + "{a=" * 5000, "it is nested too deep", id="deep tables"),
        ("[client]\ntimeout_s = nan", "client.timeout_s has to be at least 0.001"),
        ("[register]\npartitions = 0", "register.partitions has to be at least 1, not 0"),
        ("[register]\npartitions = 1.5", "register.partitions has to be a whole number"),
        ("[node]\nmemory_budget = 100663295", "node.memory_budget has to be at least 100663296"),
        ("[log]\nlevel = 'loud'", "log.level has to be one of debug, info, warning, error"),
        ("[client\n", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        Configuration(file, {})
    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("OCTOPI_PARTITIONS", "many", "has to be a whole number, not 'many'"),
        ("OCTOPI_TIMEOUT_S", "", "has to be a number, not ''"),
        ("OCTOPI_TIMEOUT_S", "-1", "has to be at least 0.001, not -1"),
        ("OCTOPI_ID", "x", "has to be a whole number, not 'x'"),
        ("OCTOPI_LOG_FORMAT", "xml", "has to be one of auto, console, json, not 'xml'"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=f"environment variable {name}") as caught:
        Configuration(None, {name: text})
    assert complaint in str(caught.value)


def test_a_wrong_flag_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match="--timeout has to be at least"):
        Configuration(None, {}).section(ClientSettings, timeout_s=0.0)


def test_a_named_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"no\.toml: No such file"):
        Configuration(tmp_path / "no.toml", {})


def test_config_show_says_where_each_value_comes_from(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, "[register]\npartitions = 3\n")
    monkeypatch.setenv("OCTOPI_SERVER", "ws://variable:1")
    shown = json.loads(program("config", "show", "--config", str(file), "--json").stdout)
    assert shown["client.server"] == {"value": "ws://variable:1", "source": "OCTOPI_SERVER"}
    assert shown["register.partitions"] == {"value": 3, "source": str(file)}
    assert shown["client.timeout_s"] == {"value": 5.0, "source": "default"}
    assert len(shown) == sum(len(attrs.fields(cls)) for cls in SECTIONS.values())


def test_config_show_prints_columns(program: Program) -> None:
    lines = program("config", "show").stdout.splitlines()
    assert lines[0].split() == ["SETTING", "VALUE", "SOURCE", "MEANING"]
    assert lines[1].split()[:3] == ["client.server", "ws://127.0.0.1:7000", "default"]


NOT_SET: dict[str, dict[str, object]] = {
    "broker": {"id": None},
    "node": {
        "token_bytes_per_s": None,
        "token_topics": None,
        "token_stored_bytes": None,
        "token_readings": None,
    },
}
"""Settings whose default no file can say."""


def test_the_documented_file_holds_the_defaults(tmp_path: Path) -> None:
    document = Path(__file__).parents[2] / "docs" / "command-line.md"
    (block,) = re.findall(r"```toml\n(.*?)```", document.read_text(), re.DOTALL)
    documented = tomllib.loads(block)
    assert documented.keys() == SECTIONS.keys()
    for section, cls in SECTIONS.items():
        defaults = {field.name: field.default for field in attrs.fields(cls)}
        assert {**documented[section], **NOT_SET.get(section, {})} == defaults
        for field in attrs.fields(cls):
            assert field.metadata["variable"] in block
