"""The systemd units: their own command lines start nodes, which tell systemd how they are."""

from __future__ import annotations

import shlex
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs
import pytest

from tests.deploy.host import DEPLOY, Host, free_addresses, host

UNITS: Final = DEPLOY / "systemd"
_WAIT_S: Final = 30.0

pytestmark = [pytest.mark.process, pytest.mark.slow]


@attrs.frozen
class Unit:
    """The settings of a unit's [Service] section, for one instance."""

    name: str
    settings: dict[str, list[str]]

    @classmethod
    def read(cls, file: str, instance: str = "") -> Unit:
        settings: dict[str, list[str]] = {}
        text = (UNITS / file).read_text().replace("%i", instance)
        for line in text.partition("[Service]\n")[2].partition("\n[Install]")[0].splitlines():
            if line and not line.startswith("#"):
                key, _, value = line.partition("=")
                settings.setdefault(key, []).append(value)
        return cls(file.removesuffix(".service").removesuffix("@") + instance, settings)

    def one(self, key: str) -> str:
        (value,) = self.settings[key]
        return value

    def variables(self, on: Host) -> dict[str, str]:
        """The environment that the unit gives to its node."""
        lines = list(self.settings.get("Environment", []))
        for file in self.settings.get("EnvironmentFile", []):
            assert file.startswith("-"), "the file need not be there"
            path = on.path(file[1:])
            lines += path.read_text().splitlines() if path.exists() else []
        assert "%" not in "".join(lines)
        return dict(on.here(line, {}).split("=", 1) for line in lines)


class Systemd:
    """Starts a unit as systemd does, and hears what its node says.  A context manager."""

    def __init__(self, on: Host, unit: Unit) -> None:
        self._on = on
        self.unit = unit
        self._heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(on.root / f"{unit.name}.notify"))
        self._socket.settimeout(_WAIT_S)

    def start(self) -> None:
        assert self.unit.one("Type") == "notify"
        assert 10 <= int(self.unit.one("WatchdogSec")) <= 60
        variables = {
            "NOTIFY_SOCKET": str(self._on.root / f"{self.unit.name}.notify"),
            # The unit's interval would be long for a test.
            "WATCHDOG_USEC": "3000000",
        }
        command = shlex.split(self._on.here(self.unit.one("ExecStart"), {}))
        self._on.launch(self.unit.name, command, variables | self.unit.variables(self._on))

    def wait_for(self, state: str) -> str:
        """Wait until the node says *state*; the whole message."""
        while True:
            for index, message in enumerate(self._heard):
                if state in message.splitlines():
                    del self._heard[: index + 1]
                    return message
            try:
                self._heard.append(self._socket.recv(4096).decode())
            except TimeoutError:
                pytest.fail(f"{self.unit.name} did not say {state}, but: {self._heard}")

    def stop(self) -> None:
        self._on.signal(self.unit.name)
        self.wait_for("STOPPING=1")
        assert self._on.wait(self.unit.name) == 0

    def __enter__(self) -> Systemd:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()


def protect(on: Host) -> None:
    """What an operator makes before the first start."""
    etc = str(on.path("/etc/octopi"))
    on.run(["octopi-node", "tls", "dev-ca", etc, "--host", "127.0.0.1"], {})
    on.run(["octopi-node", "secret", f"{etc}/join-secret"], {})
    on.run(["octopi-node", "token", "keygen", f"{etc}/keys.json"], {})
    for name, verbs in (
        ("node", ("--replicate", "--consume")),
        ("operator", ("--admin", "--create", "--publish", "--subscribe")),
    ):
        granted = [one for verb in verbs for one in (verb, "*")]
        make = ["octopi-node", "token", "create", "--key", f"{etc}/keys.json", "--subject", name]
        token = on.run([*make, *granted, "--forever"], {})
        (on.path("/etc/octopi") / f"{name}.token").write_text(token)


def test_a_cluster_runs_by_the_command_lines_of_its_units(tmp_path: Path) -> None:
    register_at, first_at, second_at = free_addresses(3)
    places = {
        "0.0.0.0:7000": register_at,
        "0.0.0.0:7001": first_at,
        "register.example:7000": register_at,
        "broker-1.example:7001": first_at,
    }
    with host(tmp_path / "host") as on, ExitStack() as units:
        protect(on)
        config = on.path("/etc/octopi/octopi.toml")
        config.write_text(on.here((UNITS / "octopi.toml").read_text(), places))
        # The second broker of this machine differs from the file.
        on.path("/etc/octopi/broker-2.env").write_text(
            f"OCTOPI_LISTEN={second_at}\nOCTOPI_ADVERTISE=wss://{second_at}\n"
        )
        register, *brokers = (
            units.enter_context(Systemd(on, unit))
            for unit in (
                Unit.read("octopi-register.service"),
                Unit.read("octopi-broker@.service", "1"),
                Unit.read("octopi-broker@.service", "2"),
            )
        )
        register.start()
        assert register_at in register.wait_for("READY=1")
        for broker, address in zip(brokers, (first_at, second_at), strict=True):
            broker.start()
            assert f"STATUS=broker at wss://{address}" in broker.wait_for("READY=1")
        # Ready means joined.
        said = on.run(["octopi-node", "status", "--config", str(config)], {})
        assert "2 of 2 brokers up" in said
        assert sorted(one.name for one in on.path("/var/lib/octopi").iterdir()) == [
            "broker-1",
            "broker-2",
            "register",
        ]
        for unit in (register, *brokers):
            for _ in range(2):
                unit.wait_for("WATCHDOG=1")
        for unit in (*brokers, register):
            unit.stop()


def test_the_units_differ_only_in_what_they_run() -> None:
    register = Unit.read("octopi-register.service").settings
    broker = Unit.read("octopi-broker@.service", "1").settings
    assert {key for key in register | broker if register.get(key) != broker.get(key)} == {
        "Environment",
        "EnvironmentFile",
        "ExecStart",
        "TimeoutStartSec",
    }
    assert broker["TimeoutStartSec"] == ["infinity"], "a broker waits for its register"
    assert broker["Environment"][0] == "OCTOPI_ID=1"
    # It hides the id of the machine's boot.
    assert "ProcSubset" not in broker
