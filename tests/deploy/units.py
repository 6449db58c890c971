"""The systemd units of deploy/: what they say, and starting them as systemd does."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import attrs
import pytest

from tests.deploy.host import DEPLOY, Host, free_addresses

UNITS: Final = DEPLOY / "systemd"
CONFIG: Final = "/etc/octopi/octopi.toml"
_WAIT_S: Final = 30.0


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
        self._notify = f"/{unit.name}.notify"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(on.path(self._notify)))
        self._socket.settimeout(_WAIT_S)

    def start(self) -> None:
        assert self.unit.one("Type") == "notify"
        assert 10 <= int(self.unit.one("WatchdogSec")) <= 60
        variables = {
            "NOTIFY_SOCKET": self._on.named(self._notify),
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

    def kill9(self) -> None:
        """End the node with SIGKILL; return when it is gone."""
        self._on.kill9(self.unit.name)

    def __enter__(self) -> Systemd:
        return self

    def __exit__(self, *failure: object) -> None:
        self._socket.close()


@attrs.frozen
class Units:
    """The units of a cluster, whose nodes run."""

    register_at: str
    """The register's address, without a scheme."""
    register: Systemd
    brokers: list[Systemd]
    """In the order of their ids, from 1 on."""


@contextmanager
def cluster_of_units(on: Host, broker_count: int) -> Iterator[Units]:
    """A register and brokers of this host, which are ready: they have joined."""
    register_at, *brokers_at = free_addresses(1 + broker_count)
    places = {
        "0.0.0.0:7000": register_at,
        "0.0.0.0:7001": brokers_at[0],
        "register.example:7000": register_at,
        "broker-1.example:7001": brokers_at[0],
    }
    _protect(on)
    on.path(CONFIG).write_text(on.here((UNITS / "octopi.toml").read_text(), places))
    for number, address in enumerate(brokers_at[1:], 2):  # what differs from the file
        on.path(f"/etc/octopi/broker-{number}.env").write_text(
            f"OCTOPI_LISTEN={address}\nOCTOPI_ADVERTISE=wss://{address}\n"
        )
    with ExitStack() as units:
        register, *brokers = (
            units.enter_context(Systemd(on, unit))
            for unit in (
                Unit.read("octopi-register.service"),
                *(Unit.read("octopi-broker@.service", str(n + 1)) for n in range(broker_count)),
            )
        )
        register.start()
        assert register_at in register.wait_for("READY=1")
        for broker in brokers:
            broker.start()
        for broker, address in zip(brokers, brokers_at, strict=True):
            assert f"STATUS=broker at wss://{address}" in broker.wait_for("READY=1")
        yield Units(register_at, register, brokers)


def _protect(on: Host) -> None:
    """What an operator makes before the first start."""
    etc = on.named("/etc/octopi")
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
