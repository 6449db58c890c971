"""A run ends in a verdict: all is well, or which rule was broken, and always the same."""

from __future__ import annotations

import logging
from math import inf
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from octopi.clients.client import Client
from octopi.clients.producing.producer_session import ProducerSession
from octopi.coordination.cluster_view import ClusterView
from octopi.errors import OctopiError
from octopi.logger import get_logger
from octopi.replication.log_leader import LogLeader
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Reset,
    Wipe,
)
from octopi.simulation.history.events import Acknowledged, Delivered, FinalLog, Rested
from octopi.simulation.kernel.world import Event, Violation
from octopi.tracing import steps
from octopi.wire.messages import PartitionInfo, PartitionRecord
from sim.generate.scenario_plans import draw_scenario
from sim.generate.swarm import draw
from sim.run import producer_program, simulation
from sim.run.operator_program import Operator
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import Observer, simulate
from sim.run.too_few import RunningBrokers

QUICK = WorkloadOptions(producers=2, records=10, consumers=1)
FAULTS = (
    InjectedFault(AtStep("P3b", "follower", 7), LosePower(0.2)),
    InjectedFault(AtStep("P7b", "leader", 9), Kill(0.4)),
    InjectedFault(AtTime(0.4), Cut("register", 1.5), "leader"),
    InjectedFault(AtStep("C1b", "client", 11), Kill(0.1)),
    InjectedFault(AtStep("E8b", "register"), Kill(0.3)),
)
STANDARD = Plan(5, faults=FAULTS)


@pytest.mark.parametrize("tier", ["message", "websocket"])
def test_a_standard_run_with_five_faults_keeps_every_promise(tier: str) -> None:
    verdict = simulate(Plan(5, tier=tier, faults=FAULTS))
    assert verdict.violation is None, verdict.details
    assert verdict.counts["Invoked"] == 200 + 2 * (4 + 1)  # last words, and to prove each log
    assert verdict.counts["fault Kill"] >= 2
    assert verdict.marks["a leader was replaced"]
    logs = [one for one in verdict.history.events if isinstance(one, FinalLog)]
    acknowledged = {one.value for one in verdict.history.events if isinstance(one, Acknowledged)}
    assert acknowledged <= {message.value for log in logs for message in log.messages}
    assert any(isinstance(one, Rested) for one in verdict.history.events)


def test_the_same_plan_has_the_same_digest_and_another_seed_another_one() -> None:
    first, again = simulate(STANDARD), simulate(STANDARD)
    other = simulate(Plan(6, faults=FAULTS))
    assert first.digest == again.digest != other.digest
    assert first.history == again.history


def test_an_observer_that_finds_a_rule_broken_ends_the_run() -> None:
    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == steps.P7Acknowledged.text:
                cluster.world.fail(Violation("nobody acknowledges", "somebody did", (event,)))

        return observe

    verdict = simulate(Plan(1, workload=QUICK), [watch])
    assert verdict.rule == "nobody acknowledges"
    assert verdict.violation is not None
    assert verdict.violation.events[0].what == steps.P7Acknowledged.text


def test_exceptions_and_unexcused_errors_in_a_log_break_a_rule() -> None:
    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == steps.P6Committed.text and not cluster.world.now > 1:
                get_logger("octopi.test").error("out of order", partition=7)

        return observe

    verdict = simulate(Plan(1, workload=QUICK), [watch])
    assert verdict.rule == "complaint"
    assert "out of order {'partition': 7}" in verdict.details
    assert logging.getLogger("octopi").propagate, "it was for the run only"


def test_an_exception_within_a_node_is_a_broken_rule() -> None:
    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == steps.P2Appended.text:
                raise ZeroDivisionError("a fault of ours")

        return observe

    verdict = simulate(Plan(1, workload=QUICK), [watch])
    assert verdict.rule in {"exception", "complaint"}
    assert "a fault of ours" in f"{verdict.violation}{verdict.details}"


def test_a_crashed_server_is_restarted_if_only_the_history_is_checked() -> None:
    crashes: list[Event] = []

    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == steps.P2Appended.text and not crashes:
                crashes.append(event)
                raise ZeroDivisionError("a fault of ours")

        return observe

    verdict = simulate(Plan(1, workload=QUICK), [watch], outlives_crashes=True)
    assert crashes
    assert verdict.rule == "exception"
    assert verdict.outside is None
    assert any(isinstance(one, Rested) for one in verdict.history.events)


def test_a_producer_that_gives_up_before_its_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    disconnected = ProducerSession.disconnected

    def give_up(self: ProducerSession, why: OctopiError, **options: Any) -> None:  # noqa: ANN401
        disconnected(self, why, **options)
        self.fail(why)

    monkeypatch.setattr(ProducerSession, "disconnected", give_up)
    dead = InjectedFault(AtStep("P2b", "leader", 3), Kill(0.1))
    verdict = simulate(Plan(1, workload=QUICK, faults=(dead,)))
    assert verdict.rule == "complaint"
    assert str(verdict.outside) == str(verdict.violation)
    assert "gave up early" in str(verdict.violation)


def test_a_producer_that_goes_on_failing_after_all_faults_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected = ProducerSession.connected
    sessions: list[ProducerSession] = []

    def once(self: ProducerSession, generation: int = 0) -> None:
        if self not in sessions:
            sessions.append(self)
            connected(self, generation)

    monkeypatch.setattr(ProducerSession, "connected", once)
    workload = attrs.evolve(QUICK, delivery_timeout_s=0.5)
    dead = InjectedFault(AtStep("P7b", "leader", 3), Kill(0.1), "leader")
    verdict = simulate(Plan(1, workload=workload, faults=(dead,)))
    assert verdict.rule == "liveness"
    assert verdict.outside == verdict.violation
    assert "producers get no receipts" in str(verdict.violation)


def test_a_burst_is_one_batch_or_several_that_are_under_way_at_a_time() -> None:
    def batches(batch_bytes: int) -> int:
        workload = WorkloadOptions(producers=1, records=20, burst_count=10, batch_bytes=batch_bytes)
        verdict = simulate(Plan(1, workload=workload))
        assert verdict.violation is None, verdict.details
        return sum(event.what == steps.P1Received.text for event in verdict.events)

    assert batches(1) >= 20 > batches(WorkloadOptions().batch_bytes)


def test_a_cluster_without_progress_is_reported_with_the_stuck_tasks() -> None:
    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == "boot" and event.host == "healer":
                cluster.network.isolate("register")
                cluster.nodes["broker-1"].host.kill()

        return observe

    verdict = simulate(Plan(1, workload=QUICK), [watch])
    assert verdict.rule == "liveness"
    assert str(verdict.violation).endswith("broker-1"), "it waits for the register"


def test_a_broker_that_is_cut_off_for_ever_does_not_stop_the_others() -> None:
    verdict = simulate(Plan(3, cut_off="broker-1", workload=QUICK))
    assert verdict.violation is None, verdict.details


def test_a_broker_whose_disk_was_lost_is_replaced() -> None:
    verdict = simulate(
        Plan(3, workload=QUICK, faults=(InjectedFault(AtTime(0.15), Wipe(), "broker-2"),))
    )
    assert verdict.violation is None, verdict.details
    assert verdict.counts["fault Wipe"] == 1


def test_consumers_that_begin_late_or_again_see_every_later_message() -> None:
    workload = WorkloadOptions(
        producers=2, records=40, consumers=3, reopen_count=10, starts_late=True
    )
    verdict = simulate(Plan(2, workload=workload))
    assert verdict.violation is None, verdict.details
    assert verdict.counts["Resumed"]
    assert any(isinstance(one, Delivered) for one in verdict.history.events)


def test_operating_commands_are_carried_out_during_a_run() -> None:
    workload = WorkloadOptions(records=60, chores=("topic", "move", "drain", "grow"))
    verdict = simulate(Plan(2, brokers=4, workload=workload))
    assert verdict.violation is None, verdict.details
    assert verdict.marks["a topic was removed from a broker"]
    assert verdict.marks["a broker gave a replica up"]


@pytest.mark.parametrize("seed", range(1, 9))
def test_drawn_plans_break_no_rule(seed: int) -> None:
    verdict = simulate(draw(seed), events_kept=100)
    assert verdict.violation is None, verdict.details


def test_each_broker_is_killed_once_more_and_the_others_go_on() -> None:
    verdict = simulate(Plan(5, workload=QUICK, kills_each=True), events_kept=None)
    assert verdict.violation is None
    killed = [event.host for event in verdict.events if event.what == "kill"]
    assert [one for one in killed if one.startswith("broker")][:3] == [
        "broker-1",
        "broker-2",
        "broker-3",
    ]


def test_a_broker_that_is_needed_is_not_killed_once_more() -> None:
    verdict = simulate(
        Plan(5, replicas=2, min_insync=2, workload=QUICK, kills_each=True), events_kept=None
    )
    assert verdict.violation is None
    healed = next(event.number for event in verdict.events if event.what == "healed")
    rest = [event for event in verdict.events if event.number > healed]
    read = next(event.number for event in rest if (event.what, event.host) == ("boot", "reader"))
    assert not [one for one in rest if one.what == "kill" and one.number < read]


def test_brokers_take_messages_instead_of_one_whose_disk_is_full_or_fails() -> None:
    plan = Plan(3, partitions=3, workload=attrs.evolve(QUICK, topic_partitions=3))
    verdict = simulate(attrs.evolve(plan, spoils_disks=True), events_kept=None)
    assert verdict.violation is None, verdict.details
    told = [one.facts for one in verdict.events if one.what == steps.J14Troubled.text]
    assert any("No space" in one["disk_trouble"] for one in told)
    failed = [one.reason for facts in told for one in facts["troubles"]]
    assert any("Input/output" in reason for reason in failed)


def test_producers_find_leaders_that_changed_while_they_were_silent_without_the_register() -> None:
    plan = Plan(1, replicas=1, workload=QUICK, without_register=True)
    verdict = simulate(plan, events_kept=None)
    assert verdict.violation is None, verdict.details
    gone = next(
        one.number for one in verdict.events if (one.what, one.host) == ("kill", "register")
    )
    back = [one.number for one in verdict.events if (one.what, one.host) == ("boot", "register")][
        -1
    ]
    heard = [
        one
        for one in verdict.events
        if gone < one.number < back and one.what == steps.C3Receipt.text
    ]
    assert {one.host for one in heard} >= {"producer-1"}


def test_messages_of_version_1_records_are_stored_once() -> None:
    workload = attrs.evolve(QUICK, opaque_records=8)
    lost = InjectedFault(AtStep("P7a", "leader", 3), Reset("client"), "leader")
    verdict = simulate(Plan(1, workload=workload, faults=(lost,)))
    assert verdict.violation is None, verdict.details
    final = [
        one
        for event in verdict.history.events
        if isinstance(event, FinalLog)
        for one in event.messages
    ]
    assert len([one for one in final if one.value.startswith(b"opaque")]) == 8


def test_a_receipt_that_waits_beside_fetches_is_complained_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(1, workload=attrs.evolve(QUICK, polls=64))
    verdict = simulate(plan)
    assert verdict.violation is None, verdict.details
    monkeypatch.setattr(producer_program, "_PROMPT_S", 0.0)
    verdict = simulate(plan)
    assert verdict.violation is not None
    assert "beside fetches that wait" in str(verdict.violation)


def test_leaving_an_in_sync_broker_out_of_a_description_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    describe = ClusterView.partition

    def without_one(self: ClusterView, record: PartitionRecord) -> PartitionInfo:
        info = describe(self, record)
        return attrs.evolve(info, readers=info.readers[1:] or info.readers)

    monkeypatch.setattr(ClusterView, "partition", without_one)
    monkeypatch.setattr(simulation, "LIVENESS_S", 3.0)
    verdict = simulate(Plan(5, partitions=1, workload=attrs.evolve(QUICK, topic_partitions=1)))
    assert verdict.rule == "liveness"
    assert "partitions are not served" in str(verdict.violation)


def test_files_left_of_a_deleted_topic_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "LIVENESS_S", 3.0)

    def watch(cluster: SimulatedCluster) -> Observer:
        def observe(event: Event) -> None:
            if event.what == "healed":
                disk = cluster.nodes["broker-2"].host.disk.attach(lambda *_: None)
                disk.make_directory("data/logs/0/ghost")
                disk.open("data/logs/0/ghost/checkpoint", create=True).close()

        return observe

    verdict = simulate(Plan(5, workload=QUICK), [watch])
    assert verdict.rule == "liveness"
    assert "broker-2: data/logs/0/ghost" in str(verdict.violation)


AT_REST = Plan(
    1, loses_all=True, loses_power=True, flush_interval_s=0.05, workload=QUICK, latency_s=0.001
)


def test_what_was_flushed_survives_that_all_machines_lose_their_power_in_the_end() -> None:
    verdict = simulate(AT_REST, events_kept=None)
    assert verdict.violation is None, verdict.details
    dark = {one.host for one in verdict.events if one.what == "lose power"}
    assert dark == {"register", "broker-1", "broker-2", "broker-3"}


def test_an_acknowledgement_while_too_few_brokers_run_is_a_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    away = InjectedFault(AtTime(0.4), Kill(2.0), "broker-2")
    load = attrs.evolve(QUICK, records=30, pause_s=0.05)
    plan = Plan(1, brokers=2, replicas=2, min_insync=2, faults=(away,), workload=load)
    assert simulate(plan).violation is None
    nobody = property(lambda self: frozenset[int](), lambda *_: None)
    monkeypatch.setattr(LogLeader, "_others", nobody)
    outside = simulate(plan).outside
    assert outside is not None
    assert "meanwhile 1 brokers ran, and 2 have to be in sync" in str(outside)


def test_a_broker_that_has_just_started_can_not_have_what_is_acknowledged_at_once() -> None:
    verdict = simulate(draw_scenario("too_few_for_what_waits", 1), events_kept=None)
    assert verdict.violation is None
    lives = {"broker-1": [(0.0, inf)], "broker-2": [(0.0, 1.0), (2.0, 2.2)]}
    running = RunningBrokers(SimpleNamespace(world=SilentWorld(now=2.5)), latency_s=0.02)
    running._lives = lives
    assert running.count_since(0.9) == 2
    assert running.count_since(1.5) == 1  # it ran for 0.2 s, and needs 0.3 s
    lives["broker-2"][-1] = 2.0, 2.4
    assert running.count_since(1.5) == 2


@attrs.define
class SilentWorld:
    """A world in which nothing is observed."""

    now: float

    def observe(self, observer: object, kinds: object) -> None:
        """Ignore *observer*."""


def test_others_take_messages_although_they_hung_and_one_died_when_a_disk_became_full() -> None:
    verdict = simulate(draw_scenario("full_beside_sleepers", 2), events_kept=None)
    assert verdict.violation is None, verdict.details
    healed = next(one.at for one in verdict.events if one.what == "healed")
    hung = [one for one in verdict.events if one.what == "pause" and one.at > healed]
    assert len(hung) >= 2
    back = [one.host for one in verdict.events if one.what == "boot" and one.at > hung[0].at]
    assert {*back} & {"broker-1", "broker-2", "broker-3"}


def test_the_only_replica_takes_messages_when_linux_tells_a_failed_flush_once_more() -> None:
    verdict = simulate(draw_scenario("flush_of_the_only_replica_fails", 20), events_kept=None)
    assert verdict.violation is None, verdict.details
    healed = next(one.at for one in verdict.events if one.what == "healed")
    told = [one for one in verdict.events if one.what == steps.J14Troubled.text]
    early = [of.reason for one in told if one.at < healed for of in one.facts["troubles"]]
    late = [of.reason for one in told if one.at > healed for of in one.facts["troubles"]]
    assert any("fsync failed" in reason for reason in early)
    assert not any("fsync failed" in reason for reason in late)


@pytest.mark.parametrize("seed", [2, 7])
def test_a_broker_whose_flush_failed_is_in_sync_again_after_one_restart(seed: int) -> None:
    verdict = simulate(draw_scenario("flush_fails", seed), events_kept=None)
    assert verdict.violation is None, verdict.details


def test_a_topic_is_replaced_twice_before_the_first_one_is_removed() -> None:
    verdict = simulate(draw_scenario("made_again_too_soon", 2), events_kept=None)
    assert verdict.violation is None, verdict.details
    made = [one for one in verdict.events if one.what == steps.T4Installed.text]
    assert [one.facts["topic"] for one in made].count("replaced-1") == 3


def test_options_that_are_not_those_confirmed_last_are_a_complaint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = attrs.evolve(QUICK, chores=("alter",))
    assert simulate(Plan(2, replicas=2, workload=load)).violation is None

    async def forget(self: Operator, client: Client, topic: str, **options: object) -> None:
        self._options[topic] = {**options, "min_insync": 7}

    monkeypatch.setattr(Operator, "_set_options", forget)
    outside = simulate(Plan(2, replicas=2, workload=load)).outside
    assert outside is not None
    assert "topic-1 has min_insync 1, but 7 was confirmed" in str(outside)


def test_a_broker_is_asked_to_stop_when_it_has_decided_to_go_on_without_another_one() -> None:
    verdict = simulate(draw_scenario("stops_in_the_end", 6), events_kept=None)
    assert verdict.violation is None, verdict.details
    healed = next(one.at for one in verdict.events if one.what == "healed")
    after = [one for one in verdict.events if one.at > healed]
    stored = [one for one in after if one.what == steps.D2Promising.text]
    asked = {one.host: one.at for one in after if one.what == "stop"}
    assert any(
        asked[one.host] - 0.05 < one.at < asked[one.host] for one in stored if one.host in asked
    )
