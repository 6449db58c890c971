"""Members of a durable subscription in simulated runs: they come to the end, and say so."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message
from octopi.roles.broker.subscriptions.letters import ORIGIN
from octopi.simulation.cluster import SimulatedCluster
from octopi.simulation.faults.actions import BitFlip, RollBack
from octopi.simulation.faults.damage import Damage
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.history.events import LogName
from octopi.simulation.invariants import queues
from octopi.simulation.invariants.oracle import Oracle
from octopi.simulation.invariants.subscriptions import CONFIRMED, HANDED, PROCESSED
from octopi.simulation.kernel.world import World
from octopi.tracing import steps
from sim.generate import scenario_plans, swarm
from sim.generate.scenario import Scenario
from sim.generate.scenarios_of_queues import QUEUE_SCENARIOS
from sim.generate.scenarios_of_subscriptions import SUBSCRIPTION_SCENARIOS
from sim.run.client_log import ClientLog
from sim.run.group_notes import GroupNotes, HeldLog
from sim.run.plan import Plan, WorkloadOptions
from sim.run.queue_notes import QueueNotes
from sim.run.simulation import simulate


@pytest.mark.parametrize("mode", ["exclusive", "failover"])
def test_members_process_all_messages_and_no_rule_is_broken(mode: Any) -> None:  # noqa: ANN401
    load = WorkloadOptions(
        producers=1,
        records=20,
        consumers=1,
        topic_partitions=2,
        members=2,
        member_mode=mode,
        member_pause_s=0.01,
        member_stay_count=5,
        chores=("reset", "delete"),
    )
    verdict = simulate(Plan(1, workload=load), [Oracle])
    assert verdict.violation is None
    words = {event.what for event in verdict.events}
    assert {HANDED, PROCESSED, CONFIRMED, steps.S5Attached.text} <= words


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_members_of_a_queue_settle_all_messages_and_no_rule_is_broken(mode: Any) -> None:  # noqa: ANN401
    load = WorkloadOptions(
        producers=1,
        records=30,
        consumers=1,
        topic_partitions=2,
        members=2,
        member_mode=mode,
        member_pause_s=0.01,
        member_stay_count=8,
        chores=("reset", "delete"),
    )
    verdict = simulate(Plan(1, workload=load), [Oracle])
    assert verdict.violation is None
    words = {event.what for event in verdict.events}
    of_queues = {queues.HANDED, queues.ACKNOWLEDGED, queues.CONFIRMED}
    assert of_queues <= words
    assert {one.text for one in (steps.S6Sent, steps.S7Told, steps.S14Heard)} <= words


def test_a_queue_whose_members_make_no_progress_is_a_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(QueueNotes, "behind", lambda notes, marks, ends: "the queue is at 0")
    load = WorkloadOptions(
        producers=1, records=2, consumers=1, topic_partitions=1, members=1, member_mode="shared"
    )
    violation = simulate(Plan(1, workload=load), [Oracle]).violation
    assert violation is not None
    assert violation.rule == "liveness"
    assert "the queue is at 0" in str(violation)


def test_a_member_that_makes_no_progress_is_a_standstill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupNotes, "behind", lambda notes, ends: "members are at 0")
    load = WorkloadOptions(producers=1, records=2, consumers=1, topic_partitions=1, members=1)
    violation = simulate(Plan(1, workload=load), [Oracle]).violation
    assert violation is not None
    assert violation.rule == "liveness"
    assert "members are behind" in str(violation)


def test_between_a_third_and_a_half_of_all_plans_have_members() -> None:
    for draw in (swarm.draw, scenario_plans.draw):
        having = sum(draw(seed).workload.members > 0 for seed in range(1000))
        assert 300 <= having <= 500


@pytest.mark.parametrize(
    "tell", dict.fromkeys((*SUBSCRIPTION_SCENARIOS, *QUEUE_SCENARIOS)), ids=lambda one: one.__name__
)
def test_scenarios_of_subscriptions_name_existing_hosts(
    tell: Callable[[Random], Scenario],
) -> None:
    for seed in range(20):
        scenario = tell(Random(seed))
        members = {f"member-{one}" for one in range(1, scenario.load["members"] + 1)}
        named = {one.target for one in scenario.faults if one.target.startswith("member")}
        assert named <= members


# --- what clients alone can know ---------------------------------------------------------------

LOG = LogName("topic-1", PartitionId(0))


class Told:
    """Notes of members, and what is wrong with them."""

    def __init__(self, plan: Plan = Plan(1)) -> None:  # noqa: B008  # frozen
        world = World(1)
        relays = SimpleNamespace(losses=[])
        cluster = SimpleNamespace(world=world, nodes={}, decided=None, relays=relays)
        self.client_log = ClientLog(cast(SimulatedCluster, cluster), plan)
        self.notes = GroupNotes(self.client_log)

    def hand(self, held: HeldLog, offset: int) -> Message:
        where = TopicName(LOG.topic), LOG.partition, Offset(offset), Offset(offset + 10)
        message = Message(*where, None, None, b"", {}, b"")
        self.notes.handed("member-1", held, message)
        return message

    def process(self, held: HeldLog, offset: int) -> None:
        self.notes.processed("member-1", held, self.hand(held, offset))


def held(claim: int, member: str = "m1") -> HeldLog:
    return HeldLog("51" * 8, member, LOG, claim)


@pytest.fixture
def told() -> Told:
    """After a member has processed two messages and confirmed the first one."""
    one, first = Told(), held(1)
    one.process(first, 0)
    one.notes.confirmed("member-1", first)
    one.process(first, 10)
    assert one.client_log.complaints == []
    return one


def test_an_unconfirmed_message_may_come_again(told: Told) -> None:
    told.process(held(2, "m2"), 10)
    assert told.client_log.complaints == []
    assert told.notes.behind({LOG: 20}) == ""
    assert "at 20 of 30" in told.notes.behind({LOG: 30})


def test_a_confirmed_message_that_comes_again_is_a_complaint(told: Told) -> None:
    told.hand(held(2, "m2"), 0)
    assert "again" in told.client_log.complaints[0]


def test_confirmed_messages_may_come_again_from_a_broker_with_an_older_disk(told: Told) -> None:
    told.client_log.cluster.world.note(FAULT, "broker-1", action=RollBack())
    told.hand(held(2, "m2"), 0)
    assert told.client_log.complaints == []


def test_a_message_that_no_member_was_given_is_a_complaint(told: Told) -> None:
    told.hand(held(2, "m2"), 30)
    assert "were never processed" in told.client_log.complaints[0]


def test_two_members_with_one_claim_are_a_complaint(told: Told) -> None:
    told.hand(held(1, "m2"), 20)
    assert "claim 1, which m1 has, too" in told.client_log.complaints[0]


def test_a_reset_excuses_repeated_messages(told: Told) -> None:
    told.notes.resetting(PartitionId(0))
    told.hand(held(2, "m2"), 0)
    told.notes.was_reset(PartitionId(0), 50)
    told.process(held(3, "m2"), 50)
    assert told.client_log.complaints == []
    told.hand(held(4), 70)
    assert "were never processed" in told.client_log.complaints[0]


def dead_letters(count: int) -> list[Message]:
    """*count* dead letters of the message at 0."""
    headers = {ORIGIN: b"v1:topic-1@5f0c2a1b5f0c2a1b:0=0"}
    where = TopicName("topic-1.billing.dead"), LOG.partition
    ends = [(Offset(10 * one), Offset(10 * one + 10)) for one in range(count)]
    return [Message(*where, *one, None, None, b"", headers, bytes(28)) for one in ends]


def test_a_second_dead_letter_of_a_message_is_a_complaint() -> None:
    told = Told()
    QueueNotes(told.client_log).judge(dead_letters(2))
    assert any("and another one of the message at 0" in one for one in told.client_log.complaints)


@pytest.mark.parametrize("action", [Damage(harm="older", part="ends"), BitFlip(), RollBack()])
def test_a_dead_letter_may_be_there_again_after_a_broker_led_with_an_older_disk(
    action: Damage | BitFlip | RollBack,
) -> None:
    told = Told()
    notes = QueueNotes(told.client_log)
    told.client_log.cluster.world.note(FAULT, "broker-1", action=action)
    notes.judge(dead_letters(2))
    assert not any("another one" in one for one in told.client_log.complaints)
    notes.judge(dead_letters(1))
    assert any("another one" in one for one in told.client_log.complaints)
