"""Contexts: which cluster a command connects to, and what it shows there."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from octopi.cli.config import ClientSettings, Configuration
from octopi.cli.contexts import Context, context_file, read_contexts
from octopi.cli.failures import CommandError
from tests.cli.conftest import Program, RunningCluster

PROD = ("context", "add", "prod", "--server", "wss://a:7000,wss://b:7000")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config" / "octopi" / "contexts.toml"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config")}


def client(environ: dict[str, str], context: str | None = None, **flags: object) -> ClientSettings:
    return Configuration(None, environ, context).section(ClientSettings, **flags)


def test_a_user_without_a_home_has_the_contexts_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    assert context_file({}) == Path("/.config/octopi/contexts.toml")


def test_a_context_is_added_used_listed_and_removed(program: Program, file: Path) -> None:
    added = program(*PROD, "--token-file", "prod.token", "--tls-ca", "ca.pem")
    assert (added.exit_code, added.stdout) == (0, "")
    assert "`octopi-node context use prod`" in added.stderr
    assert program("context", "use", "prod").exit_code == 0
    [listed] = json.loads(program("context", "list", "--json").stdout)
    assert listed == {
        "name": "prod",
        "in_use": True,
        "server": "wss://a:7000,wss://b:7000",
        "token_file": str(Path.cwd() / "prod.token"),
        "tls_ca": str(Path.cwd() / "ca.pem"),
    }
    assert program("context", "list").stdout.splitlines()[1].split()[:2] == ["*", "prod"]
    removed = program("context", "remove", "prod")
    assert removed.stderr == "removed prod; commands use no context now\n"
    assert program("context", "list", "--json").stdout == "[]\n"
    assert read_contexts(file).current == ""


def test_the_file_of_contexts_is_for_its_owner_only(program: Program, file: Path) -> None:
    program(*PROD)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_context_replaces_another_one_only_by_order(program: Program, file: Path) -> None:
    program(*PROD)
    again = program("context", "add", "prod", "--server", "ws://c:7000")
    assert again.exit_code == 2
    assert "--replace" in again.stderr
    assert read_contexts(file).get("prod").server.startswith("wss://a")
    assert program("context", "add", "prod", "--server", "ws://c:7000", "--replace").exit_code == 0
    assert read_contexts(file).get("prod") == Context("ws://c:7000")


@pytest.mark.parametrize("name", ["", "a b", "a\x1b", "ä", "x" * 65])
def test_a_name_that_is_not_allowed_is_refused(program: Program, file: Path, name: str) -> None:
    refused = program("context", "add", name, "--server", "ws://a:7000")
    assert refused.exit_code == 2
    assert not file.exists()


def test_an_address_that_is_none_is_refused(program: Program, file: Path) -> None:
    refused = program("context", "add", "prod", "--server", "ws://a:7000,http://b")
    assert refused.exit_code == 2
    assert "http://b" in refused.stderr
    assert not file.exists()


def test_an_unknown_context_is_answered_with_the_nearest(program: Program) -> None:
    program(*PROD)
    for arguments in (("context", "use", "prd"), ("--context", "prd", "config", "show")):
        refused = program(*arguments)
        assert refused.exit_code == 2
        assert "there is no context prd; did you mean prod?" in refused.stderr


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("current = ", "is damaged: "),
        ("[other]", "is damaged: there is no key other"),
        ("[contexts.a]", "is damaged: the context a has no server"),
        ("[contexts.a]\nserver = 7", "is damaged: the context a has no server"),
        ("[contexts.a]\nserver = 'ws://a:1'\ntoken = 'x'", "the context a has no key token"),
        ("[contexts.a]\nserver = 'ws://a:1'\ntls_ca = 1", "tls_ca of the context a is no line"),
        ("current = 'b'", "current is 'b', and there is no such context"),
        ("contexts = 1", "contexts are sections"),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(
    program: Program, file: Path, text: str, complaint: str
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(0o600)
    for arguments in (("config", "show"), ("context", "list"), PROD):
        refused = program(*arguments)
        assert refused.exit_code == 2
        assert str(file) in refused.stderr
        assert complaint in refused.stderr
    assert file.read_text() == text


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o606])
def test_a_file_that_is_open_to_others_is_refused(program: Program, file: Path, mode: int) -> None:
    program(*PROD)
    file.chmod(mode)
    refused = program("topics", "list")
    assert refused.exit_code == 0o2
    assert f"run `chmod 600 {file}`" in refused.stderr


def test_a_command_with_a_server_and_a_node_read_no_contexts(
    program: Program, file: Path, environ: dict[str, str]
) -> None:
    program(*PROD)
    file.chmod(0o644)
    assert client(environ, server="ws://z:1").server == "ws://z:1"
    from octopi.cli.config import BrokerSettings

    assert Configuration(None, environ).section(BrokerSettings).register == "ws://127.0.0.1:7000"
    with pytest.raises(CommandError, match="is open to other users"):
        client(environ)


def test_the_first_source_that_names_a_cluster_counts(
    program: Program, environ: dict[str, str]
) -> None:
    assert client(environ).server == "ws://127.0.0.1:7000"
    program("context", "add", "used", "--server", "ws://used:1")
    program("context", "add", "other", "--server", "ws://other:1")
    assert client(environ).server == "ws://127.0.0.1:7000"
    program("context", "use", "used")
    assert client(environ).server == "ws://used:1"
    Path("octopi.toml").write_text('[client]\nserver = "ws://file:1"\n')
    assert client(environ).server == "ws://file:1"
    environ["OCTOPI_CONTEXT"] = "other"
    assert client(environ).server == "ws://other:1"
    environ["OCTOPI_SERVER"] = "ws://variable:1"
    assert client(environ).server == "ws://variable:1"
    assert client(environ, "used").server == "ws://used:1"
    assert client(environ, server="ws://flag:1").server == "ws://flag:1"
    with pytest.raises(CommandError, match="exclude each other"):
        client(environ, "used", server="ws://flag:1")


def test_the_token_of_a_context_is_shown_to_its_cluster_only(
    program: Program, environ: dict[str, str]
) -> None:
    program("context", "add", "used", "--server", "ws://used:1", "--token-file", "/secret")
    program("context", "use", "used")
    assert client(environ).token_file == "/secret"
    assert client(environ, server="ws://flag:1").token_file == ""
    assert client({**environ, "OCTOPI_SERVER": "ws://variable:1"}).token_file == ""
    Path("octopi.toml").write_text('[client]\nserver = "ws://file:1"\n')
    assert client(environ).token_file == ""
    program("context", "add", "bare", "--server", "ws://bare:1")
    environ["OCTOPI_TOKEN_FILE"] = "/of-another-cluster"
    assert client(environ, "bare").token_file == ""


def test_config_show_says_which_context_counts(program: Program) -> None:
    program(*PROD)
    program("context", "use", "prod")
    shown = json.loads(program("config", "show", "--json").stdout)
    assert shown["client.server"]["source"] == "context prod (in use)"
    shown = json.loads(program("config", "show", "--json", "--context", "prod").stdout)
    assert shown["client.server"]["source"] == "context prod (--context)"
    program("context", "use", "--none")
    shown = json.loads(program("config", "show", "--json").stdout)
    assert shown["client.server"]["source"] == "default"


def test_a_relative_config_home_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    expected = Path("/home/me/.config/octopi/contexts.toml")
    assert context_file({"XDG_CONFIG_HOME": "config"}) == expected
    assert context_file({}) == expected


@pytest.mark.process
def test_commands_connect_to_the_context_in_use(program: Program, cluster: RunningCluster) -> None:
    program("context", "add", "here", "--server", cluster.url)
    assert program("--context", "here", "brokers", "list").exit_code == 0
    assert program("brokers", "list", "--context", "here").exit_code == 0
    program("context", "use", "here")
    assert program("brokers", "list").exit_code == 0
