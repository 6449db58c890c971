"""`octopi-node token`: keys and tokens made, looked at, and taken by a node."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from harness.processes import NodeProcesses
from octopi.cli.failures import ExitCode
from octopi.errors import InvalidOptionError, RefusedError, Status
from octopi.operating_system import SystemClock
from octopi.security.grants import Verb
from octopi.security.tokens import KeyRing, Principal
from tests.cli.conftest import Program


def verified(file: Path, token: str, later_s: float = 0) -> Principal:
    """Who holds *token*, by the keys in *file*, so many seconds from now."""
    now_ms = SystemClock().wall_ms() + round(later_s * 1000)
    return KeyRing.parse(file.read_text()).verify(token.strip(), now_ms)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_a_secret_key_signs_and_verifies_and_only_its_owner_can_read_it(
    program: Program, tmp_path: Path
) -> None:
    made = program("token", "keygen", "keys.json")
    assert made.exit_code == 0, made.stderr
    assert made.stdout == ""
    file = tmp_path / "keys.json"
    assert mode(file) == 0o600
    secret = json.loads(file.read_text())["keys"][0]["k"]
    created = program(
        *("token", "create", "--key", "keys.json", "--subject", "shop", "--ttl", "15m"),
        *("--publish", "orders.*", "--publish", "returns", "--subscribe", "*"),
    )
    assert created.exit_code == 0, created.stderr
    found = verified(file, created.stdout)
    assert found.subject == "shop"
    assert found.grants.patterns == {Verb.PUBLISH: ("orders.*", "returns"), Verb.SUBSCRIBE: ("*",)}
    verified(file, created.stdout, 14 * 60)
    with pytest.raises(RefusedError) as caught:
        verified(file, created.stdout, 16 * 60)
    assert caught.value.status is Status.EXPIRED
    for shown in (made.stderr, created.stdout, created.stderr):
        assert secret not in shown


def test_a_public_key_verifies_tokens_and_can_not_sign_any(
    program: Program, tmp_path: Path
) -> None:
    made = program("token", "keygen", "signing.json", "--public", "public.json")
    assert made.exit_code == 0, made.stderr
    assert mode(tmp_path / "signing.json") == 0o600
    options = ("--subject", "node", "--replicate", "*", "--forever")
    token = program("token", "create", "--key", "signing.json", *options).stdout
    assert verified(tmp_path / "public.json", token, 10**9).expires_ms is None
    refused = program("token", "create", "--key", "public.json", *options)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "only public keys" in refused.stderr


def test_a_key_is_never_overwritten(program: Program, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("precious")
    for arguments in (["there.json"], ["new.json", "--public", "there.json"]):
        refused = program("token", "keygen", *arguments)
        assert refused.exit_code == 2
        assert "there.json exists: choose another name" in refused.stderr
    assert (tmp_path / "there.json").read_text() == "precious"
    assert not (tmp_path / "new.json").exists(), "half a pair is of no use"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ((), "the token would grant nothing"),
        (("--publish", "a b"), "'a b' is not a pattern"),
        (("--publish", "*", "--ttl", "soon"), "--ttl has to be a time such as 30s"),
        (("--publish", "*", "--ttl", "1h", "--forever"), "exclude each other"),
        (("--publish", "*", "--subject", ""), "a subject has 1 to 200 bytes"),
        (("--publish", "*", "--key", "missing.json"), "missing.json: No such file"),
        (("--publish", "*", "--key", "nothing.json"), "no key set"),
    ],
)
def test_invalid_grants_and_options_are_refused_with_the_reason(
    options: tuple[str, ...], why: str, program: Program, tmp_path: Path
) -> None:
    (tmp_path / "nothing.json").write_text("{}")
    assert program("token", "keygen", "keys.json").exit_code == 0
    refused = program("token", "create", "--key", "keys.json", "--subject", "shop", *options)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert why in refused.stderr


def test_a_token_is_shown_to_people_and_to_programs(program: Program, tmp_path: Path) -> None:
    program("token", "keygen", "keys.json")
    made = program(
        *("token", "create", "--key", "keys.json", "--subject", "shop", "--publish", "orders.*")
    )
    file = tmp_path / "shop.token"
    file.write_text(made.stdout)
    shown = program("token", "show", "shop.token")
    assert shown.exit_code == 0
    assert "subject  shop\n" in shown.stdout
    assert "publish  orders.*\n" in shown.stdout
    assert "(HS256)" in shown.stdout
    said = json.loads(program("token", "show", "--json", input=made.stdout).stdout)
    assert said["octopi"] == {"publish": ["orders.*"]}
    assert said["exp"] == said["iat"] + 3600, "an hour, unless something else is asked for"
    refused = program("token", "show", input="nonsense")
    assert refused.exit_code == 2
    assert "no token" in refused.stderr
    assert "missing" in program("token", "show", "missing").stderr


def test_nodes_accept_the_keys_and_tokens_that_the_commands_make(
    program: Program,
    nodes: NodeProcesses,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """From keys to a refused produce, with nothing but the command line."""

    def token(name: str, *grants: str) -> str:
        made = program("token", "create", "--key", "keys.json", "--subject", name, *grants)
        file = tmp_path / f"{name}.token"
        file.write_text(made.stdout)
        return str(file)

    program("token", "keygen", "keys.json")
    protected = ["--auth-keys", str(tmp_path / "keys.json")]
    protected += ["--token-file", token("node", "--replicate", "*")]
    register = nodes.register("register", *protected)
    nodes.broker(register, "broker-1", *protected)
    mine = ("--server", register.url, "--token-file")
    operator = token("operator", "--create", "*", "--admin", "*")
    created = program("topics", "create", "orders", *mine, operator)
    assert created.exit_code == 0, created.stderr
    writer = token("writer", "--publish", "orders")
    (tmp_path / "lines").write_text("umbrella\n")
    written = program("produce", "orders", "-f", "lines", *mine, writer)
    assert written.exit_code == 0, written.stderr
    reading = ("consume", "orders", "-o", "earliest", "-e", "-f", "%v\\n", *mine)
    refused = program(*reading, writer)
    assert (refused.exit_code, capfdbinary.readouterr().out) == (ExitCode.REFUSED, b"")
    assert "does not grant subscribe on topic 'orders'" in refused.stderr
    assert program(*reading, token("reader", "--subscribe", "*")).exit_code == 0
    assert capfdbinary.readouterr().out == b"umbrella\n"
    nobody = program("status", "--server", register.url)
    assert nobody.exit_code == ExitCode.REFUSED
    assert "the node requires a token" in nobody.stderr
    for node in ("register", "broker-1"):
        log = (tmp_path / f"{node}.log").read_text()
        for secret in tmp_path.glob("*.token"):
            assert secret.read_text().strip() not in log
        assert json.loads((tmp_path / "keys.json").read_text())["keys"][0]["k"] not in log


def test_a_key_set_of_a_directory_that_is_not_there_is_an_error_of_one_line(
    program: Program,
) -> None:
    refused = program("token", "keygen", "missing/keys.json")
    assert refused.exit_code == 1
    assert refused.stderr == "octopi-node: missing/keys.json: No such file or directory\n"


def test_a_file_of_another_kind_is_refused_as_a_key_set(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text('{"keys": ["a"]}')
    with pytest.raises(InvalidOptionError, match="no key set"):
        KeyRing.parse(file.read_text())
