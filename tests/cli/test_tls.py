"""`octopi-node tls`: certificates that nodes and clients take."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest

from harness.processes import NodeProcesses
from tests.cli.conftest import Program


def test_a_cluster_runs_on_what_dev_ca_made(
    program: Program,
    nodes: NodeProcesses,
    tmp_path: Path,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    made = program("tls", "dev-ca", "tls")
    assert made.exit_code == 0, made.stderr
    folder = tmp_path / "tls"
    assert {one.name for one in folder.iterdir()} == {"ca.pem", "node.pem", "node.key"}
    assert stat.S_IMODE((folder / "node.key").stat().st_mode) == 0o600
    files = ["--tls-cert", str(folder / "node.pem"), "--tls-key", str(folder / "node.key")]
    files += ["--tls-ca", str(folder / "ca.pem")]
    register = nodes.register("register", *files)
    assert register.url.startswith("wss://127.0.0.1:")
    nodes.broker(register, "broker-1", *files)
    mine = ("--server", register.url, "--tls-ca", str(folder / "ca.pem"))
    (tmp_path / "lines").write_text("umbrella\n")
    written = program("produce", "orders", "-f", "lines", *mine)
    assert written.exit_code == 0, written.stderr
    read = program("consume", "orders", "-o", "earliest", "-e", "-f", "%v\\n", *mine)
    assert (read.exit_code, capfdbinary.readouterr().out) == (0, b"umbrella\n")
    stranger = program("status", "--server", register.url)
    assert stranger.exit_code == 3
    assert "its certificate is not to be trusted" in stranger.stderr


def test_a_certificate_is_for_the_hosts_that_were_named(program: Program, tmp_path: Path) -> None:
    made = program("tls", "dev-ca", "tls", "--host", "log.example", "--host", "10.0.0.7")
    assert made.exit_code == 0, made.stderr
    decoded = ssl._ssl._test_decode_cert(str(tmp_path / "tls" / "node.pem"))  # type: ignore[attr-defined]
    names = {(kind, name) for kind, name in decoded["subjectAltName"]}
    assert names == {("DNS", "log.example"), ("IP Address", "10.0.0.7")}


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_a_certificate_is_never_overwritten(name: str, program: Program, tmp_path: Path) -> None:
    (tmp_path / "tls").mkdir()
    (tmp_path / "tls" / name).write_text("precious")
    refused = program("tls", "dev-ca", "tls")
    assert refused.exit_code == 2
    assert f"{name} exists" in refused.stderr
    assert [one.name for one in (tmp_path / "tls").iterdir()] == [name], "all or nothing"
    assert (tmp_path / "tls" / name).read_text() == "precious"


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("source", ["flag", "variable"])
def test_a_broker_with_tls_does_not_send_clients_to_an_address_without(
    source: str,
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert program("tls", "dev-ca", "tls").exit_code == 0
    (tmp_path / "octopi.toml").write_text('[broker]\nadvertise = "wss://broker-1.example:7001"\n')
    options = ["--tls-cert", "tls/node.pem", "--tls-key", "tls/node.key", "--data-dir", "broker"]
    if source == "flag":
        options += ["--advertise", "ws://broker-1.example:7001"]
    else:
        monkeypatch.setenv("OCTOPI_ADVERTISE", "ws://broker-1.example:7001")
    refused = program("--role", "broker", *options)
    assert refused.exit_code == 2
    assert "advertise wss://broker-1.example:7001 (--advertise, OCTOPI_ADVERTISE" in refused.stderr
    assert not (tmp_path / "broker").exists(), "refused before anything is made"


@pytest.mark.usefixtures("logging_as_it_was")
def test_a_broker_does_not_advertise_what_is_no_address(program: Program) -> None:
    refused = program("--role", "broker", "--advertise", "broker-1.example:7001")
    assert refused.exit_code == 2
    assert "write ws://host:port or wss://host:port" in refused.stderr
