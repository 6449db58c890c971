"""Hypothesis draws the faults and the messages of a test, makes them smaller and remembers them."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from hypothesis.database import InMemoryExampleDatabase

import octopi.testing
from octopi.simulation.faults.actions import Cut, Kill
from octopi.testing import Cluster, Host, MisuseError, simulated
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.strategies import DrawnWorkload, TimedMessage, fault_plans, workloads

PHASES: Final = (Phase.reuse, Phase.generate, Phase.shrink)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OCTOPI_TEST_SEED", "OCTOPI_TEST_PAGES"):
        monkeypatch.delenv(name, raising=False)


async def counting(cluster: Cluster, faults: list[PlannedFault]) -> None:
    """A program that forgets its count when it dies."""
    counts: list[int] = []

    async def program(host: Host) -> None:
        for count in range(4):
            await cluster.sleep(0.5)
            host.step("counted")
            counts.append(count)

    cluster.program("counter", program)
    with cluster.planned_faults(faults):
        await cluster.sleep(3)
    await cluster.sleep(6)
    assert counts == list(range(4)), "counted otherwise"


def test_faults_are_made_smaller_and_remembered() -> None:
    database = InMemoryExampleDatabase()
    tried: list[list[PlannedFault]] = []

    @settings(
        deadline=None,
        database=database,
        derandomize=False,
        max_examples=50,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(faults=fault_plans(["counter"], ["kill", "pause"], steps=["counted"], within_s=2.0))
    @simulated(brokers=1)
    async def test(cluster: Cluster, faults: list[PlannedFault]) -> None:
        tried.append(faults)
        await counting(cluster, faults)

    with pytest.raises(AssertionError) as caught:
        test()
    assert len(tried[-1]) == 1, tried[-1]
    smallest = tried[-1]
    notes = "\n".join(caught.value.__notes__)
    assert f"faults={smallest!r}" in " ".join(notes.split()), notes
    assert repr(smallest).startswith('[cluster.kill("counter", ')
    tried.clear()
    with pytest.raises(AssertionError):
        test()
    assert tried[0] == smallest


def test_what_cannot_strike_is_left_out() -> None:
    async def test(cluster: Cluster) -> None:
        async with cluster.client("me"):
            faults = [
                PlannedFault(Kill(1.0), "me", after_s=0.1),
                PlannedFault(Kill(1.0), "nowhere", after_s=0.1),
                PlannedFault(Cut("nowhere", 1.0), "broker-1", after_s=0.1),
                PlannedFault(Kill(None), "broker-1", after_s=0.1),
                PlannedFault(Kill(None), "broker-1", after_s=0.2),
                PlannedFault(Kill(None), "broker-1", after_s=9.0),
                PlannedFault(Kill(1.0), "broker-1", step="never comes"),
            ]
            with cluster.planned_faults(faults):
                await cluster.sleep(1)
                assert not cluster.is_up("broker-1")
            await cluster.sleep(20)
            assert cluster.is_up("broker-1")

    octopi.testing.run(test)


@settings(max_examples=3, deadline=None, database=None)
@given(
    faults=fault_plans(),
    work=workloads(st.just(b"a hat"), keys=[None, b"key"], wait_s_max=0.5, messages_max=5),
)
@simulated()
async def test_a_workload_outlives_the_faults_of_brokers(
    cluster: Cluster, faults: list[PlannedFault], work: DrawnWorkload
) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        with cluster.planned_faults(faults):
            receipts = await work.send(producer, "orders")
        assert len({receipt.offset for receipt in receipts}) == len(work.messages) <= 5


@settings(max_examples=200, database=None)
@given(faults=fault_plans(["broker-1"], ["cut", "slow"], within_s=1.0), work=workloads())
def test_what_is_drawn_is_within_its_bounds(
    faults: list[PlannedFault], work: DrawnWorkload
) -> None:
    assert len(faults) <= 5
    for fault in faults:
        assert 0.0 <= fault.after_s <= 1.0
        assert fault.host == "broker-1"
        assert "cluster.cut(" in repr(fault) or "cluster.slow(" in repr(fault)
    assert 1 <= len(work.messages) <= 20
    for message in work.messages:
        assert isinstance(message, TimedMessage)
        assert message.key is None
        assert 1 <= len(message.value) <= 8


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(MisuseError, match="there is no fault 'flood'; there are kill, lose power"):
        fault_plans(kinds=["flood"])
    with pytest.raises(MisuseError, match="at least one host"):
        fault_plans([])
    with pytest.raises(MisuseError, match="there is no step 'C1'; did you mean C1a, C1b"):
        fault_plans(steps=["C1"])


def test_the_module_for_testing_does_not_import_hypothesis() -> None:
    program = "import sys, octopi.testing; print('hypothesis' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.strip() == "False"
