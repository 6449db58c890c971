"""What of a plan can happen to processes is told apart from what can't, in words; and a plan is run
with processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BreakDisk,
    Cut,
    DriftClock,
    InjectedFault,
    Kill,
    Pause,
    Reset,
    Stop,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage
from sim.generate.swarm import draw
from sim.real.clients import RealClients
from sim.real.damage import harm_files
from sim.real.ledger import Content, LogId
from sim.real.translation import translate
from sim.run.plan import Plan, WorkloadOptions, to_json
from tests.cli.conftest import Program

SMALL = WorkloadOptions(producers=2, records=20, consumers=1, topic_partitions=1, pause_s=0.01)


def test_faults_at_times_happen_to_processes_and_those_at_steps_are_left_out() -> None:
    kill = InjectedFault(AtTime(1.0), Kill(), "leader")
    pause = InjectedFault(AtTime(0.5, behind=True), Pause())
    plan = Plan(
        1,
        faults=(
            kill,
            pause,
            InjectedFault(AtStep("P3b", "leader"), Stop()),
            InjectedFault(AtEffect("sync", "before"), Stop()),
            InjectedFault(When("lag", 10), Stop(), "leader"),
        ),
    )
    real = translate(plan)
    assert [[one.fault for one in chain] for chain in real.chains] == [[kill, pause]]
    assert real.fault_count == 2
    assert len(real.left_out) == 3
    assert all("can't be seen from outside" in line for line in real.left_out)


def test_what_follows_a_fault_that_is_left_out_is_left_out_with_it() -> None:
    faults = (
        InjectedFault(AtStep("P3b", "leader"), Kill()),
        InjectedFault(AtTime(0.5, behind=True), Pause(), "register"),
        InjectedFault(AtTime(2.0), Kill(), "register"),
    )
    real = translate(Plan(1, faults=faults))
    assert [[one.fault for one in chain] for chain in real.chains] == [[faults[2]]]
    assert real.left_out[1].endswith("the fault before it is left out, and it waits for that")


def test_what_follows_an_impossible_action_waits_for_its_time() -> None:
    faults = (
        InjectedFault(AtTime(1.0), DriftClock(), "broker-1"),
        InjectedFault(AtTime(0.5, behind=True), Pause()),
    )
    [[first, second]] = translate(Plan(1, faults=faults)).chains
    assert (first.is_possible, second.is_possible) == (False, True)


@pytest.mark.parametrize(
    ("action", "target", "why"),
    [
        (BreakDisk(DiskFault("sync", Fail())), "broker-1", "the disk of a process"),
        (Kill(), "here", "nobody is here"),
        (Kill(), "client", "clients run in the process that drives"),
        (Kill(), "producer-1", "clients run in the process that drives"),
        (Kill(), "sequencer", "nobody can tell"),
        (Cut("sequencer"), "broker-1", "nobody can tell"),
        (Reset(link="follow"), "broker-1", "can't be told from each other"),
        (Wipe(), "register", "only files of brokers"),
        (Damage("older"), "broker-1", "can't be copied"),
        (Damage("cut", "journal"), "broker-1", "only files of brokers"),
    ],
)
def test_the_reason_why_something_is_left_out_is_told(action: Kill, target: str, why: str) -> None:
    real = translate(Plan(1, faults=(InjectedFault(AtTime(1.0), action, target),)))
    assert real.chains == ()
    [line] = real.left_out
    assert why in line


def test_files_of_brokers_without_a_register_are_not_damaged() -> None:
    plan = Plan(1, founders=3, faults=(InjectedFault(AtTime(1.0), BitFlip(), "broker-1"),))
    [line] = translate(plan).left_out
    assert "without a register" in line


def test_options_that_processes_do_not_follow_are_told() -> None:
    plan = Plan(1, retention_ms=1000, workload=WorkloadOptions(members=2, chores=("grow",)))
    told = translate(plan).left_out
    assert [line.partition(" ")[0] for line in told] == ["retention_ms", "chores", "members"]


def test_every_drawn_plan_can_be_translated() -> None:
    counts = [translate(draw(seed)) for seed in range(300)]
    assert any(one.fault_count for one in counts)
    assert all(one.fault_count <= len(one.plan.faults) for one in counts)


def test_damaged_files_are_those_of_the_part(tmp_path: Path) -> None:
    from random import Random

    segment = tmp_path / "logs" / "0" / "topic" / f"{0:020}.log"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(bytes(100))
    cut = harm_files(Damage("cut", "log"), tmp_path, Random(1))
    assert cut.is_noticed
    assert segment.stat().st_size < 100
    segment.write_bytes(bytes(100))
    flipped = harm_files(Damage("flip", "unheard"), tmp_path, Random(1))
    assert not flipped.is_noticed
    assert segment.read_bytes()[:96] == bytes(96)
    assert segment.read_bytes() != bytes(100)
    assert harm_files(Damage("cut", "index"), tmp_path, Random(1)).done == ""
    assert harm_files(Damage("missing", "directory"), tmp_path, Random(1)).done
    assert not segment.parent.exists()


@pytest.mark.process
def test_a_plan_that_drives_the_simulator_drives_processes(
    program: Program, tmp_path: Path
) -> None:
    plan = Plan(
        7,
        brokers=2,
        replicas=2,
        partitions=1,
        workload=SMALL,
        faults=(
            InjectedFault(When("acknowledged", 20), Kill(0.1), "leader"),
            InjectedFault(AtTime(1.0, behind=True), Pause(0.5), "register"),
            InjectedFault(AtTime(1.0), Cut("others", 0.5), "follower"),
            InjectedFault(AtStep("P3b", "leader"), Kill()),
        ),
    )
    file = tmp_path / "plan.json"
    file.write_text(to_json(plan))
    result = program("sim", "replay", str(file), "--real")
    assert result.exit_code == 0, result.output
    assert "left out: Kill" in result.stdout
    assert "1 Kill" in result.stdout
    assert "1 Cut" in result.stdout
    assert "1 Pause" in result.stdout
    assert "no promise was broken" in result.stdout


@pytest.mark.process
def test_a_message_that_is_acknowledged_and_not_read_breaks_a_promise(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_all = RealClients.read_all

    async def without_the_first(clients: RealClients) -> dict[LogId, Content]:
        return {log: content[1:] for log, content in (await read_all(clients)).items()}

    monkeypatch.setattr(RealClients, "read_all", without_the_first)
    plan = Plan(7, brokers=1, replicas=1, partitions=1, workload=SMALL)
    file, keep = tmp_path / "plan.json", tmp_path / "kept"
    file.write_text(to_json(plan))
    result = program("sim", "replay", str(file), "--real", "--keep", str(keep))
    assert result.exit_code == 1, result.output
    assert "broken: topic-1/0: acknowledged, and not there: 1 messages" in result.stdout
    assert (keep / "broker-1.log").exists()
    assert program("sim", "replay", str(file), "--real", "--keep", str(keep)).exit_code == 2


def test_a_plan_of_which_nothing_can_happen_is_refused(program: Program, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text(to_json(Plan(1, faults=(InjectedFault(AtStep("P3b"), Kill()),))))
    result = program("sim", "replay", str(file), "--real")
    assert result.exit_code == 2
    assert "none of the faults of this plan can happen to processes" in result.stderr
    assert program("sim", "replay", str(file), "--real", "--json").exit_code == 2
    assert program("sim", "replay", str(file), "--keep", "x").exit_code == 2
