"""The systemd units: their own command lines start nodes, which tell systemd how they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.host import host
from tests.deploy.units import CONFIG, Unit, cluster_of_units

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_a_cluster_runs_by_the_command_lines_of_its_units(tmp_path: Path) -> None:
    with host(tmp_path / "host") as on, cluster_of_units(on, broker_count=2) as units:
        # Ready means joined.
        said = on.run(["octopi-node", "status", "--config", on.named(CONFIG)], {})
        assert "2 of 2 brokers up" in said
        assert sorted(one.name for one in on.path("/var/lib/octopi").iterdir()) == [
            "broker-1",
            "broker-2",
            "register",
        ]
        for unit in (units.register, *units.brokers):
            for _ in range(2):
                unit.wait_for("WATCHDOG=1")
        for unit in (*units.brokers, units.register):
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
