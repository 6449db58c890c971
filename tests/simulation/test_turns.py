"""Reading costs no virtual time, so a task that reads too much in one turn is reported."""

from __future__ import annotations

from random import Random

import pytest
import trio

from octopi.limits import MIB
from octopi.simulation.disk.disk import SimulatedDisk
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.kernel.turn_meter import TURN_BYTES_MAX
from octopi.storage.time_slices import Slices
from sim.generate.scenario import Scenario
from sim.generate.scenarios_of_retention import large_log, many_large_logs
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate

PIECE_BYTES = MIB


async def long_turns(*, with_turns: bool) -> list[tuple[str, int]]:
    """What is told of a task that reads more than a turn may, in pieces."""
    told: list[tuple[str, int]] = []
    disk = SimulatedDisk()
    disk.turns.on_long_turn = lambda task, read_bytes: told.append((task, read_bytes))
    view = disk.attach(lambda operation, edge, path: None)
    view.make_directory("data")
    file = view.open("data/file", create=True)
    file.append(bytes(2 * TURN_BYTES_MAX))
    for number in range(2 * TURN_BYTES_MAX // PIECE_BYTES):
        file.pread(PIECE_BYTES, number * PIECE_BYTES)
        if with_turns:
            await trio.lowlevel.checkpoint()
    return told


async def test_a_turn_that_reads_too_much_is_reported_once() -> None:
    ((task, read_bytes),) = await long_turns(with_turns=False)
    assert task
    assert TURN_BYTES_MAX < read_bytes <= TURN_BYTES_MAX + PIECE_BYTES


async def test_a_task_that_yields_may_read_any_amount() -> None:
    assert await long_turns(with_turns=True) == []


def plan_of(scenario: Scenario) -> Plan:
    return Plan(
        1, faults=scenario.faults, workload=WorkloadOptions(**scenario.load), **scenario.options
    )


def test_records_of_many_logs_for_a_follower_are_not_read_in_one_turn() -> None:
    """All of it was, half a megabyte of each log, and as much more was put in the outbox."""
    verdict = simulate(plan_of(many_large_logs(Random(0))), [Oracle])
    assert verdict.violation is None, verdict.violation


def test_look_ups_in_large_logs_that_take_one_turn_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from octopi.roles.broker.services import read
    from octopi.storage.time_slices import at_once

    async def in_one_turn(work: Slices[int]) -> int:
        return at_once(work)

    plan = plan_of(large_log(Random(1)))
    assert simulate(plan, [Oracle]).violation is None
    monkeypatch.setattr(read, "in_turns", in_one_turn)
    violation = simulate(plan, [Oracle]).violation
    assert violation is not None
    assert violation.rule == "turn-too-long"
    assert "broker-" in str(violation)
