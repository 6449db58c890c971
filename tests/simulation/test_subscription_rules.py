"""The rules of durable subscriptions: sound histories pass, and each broken one is named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from octopi.errors import Status
from octopi.identifiers import PartitionId
from octopi.simulation.cluster import WIPE, SimulatedCluster
from octopi.simulation.faults.actions import BitFlip, RollBack, Wipe
from octopi.simulation.faults.damage import Damage
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.subscriptions import (
    CONFIRMED,
    HANDED,
    PROCESSED,
    SubscriptionRules,
)
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.tracing.step import Step
from tests.simulation.told import step_event

SID, TOPIC, MARK = "51" * 8, "orders", f"k/{'51' * 8}/0a"


class Judged:
    """The rules, and the leader and the members of a subscription to one log, which is in the
    partition of its coordinator."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        options = SimpleNamespace(retention_bytes=None, retention_ms=None)
        state = SimpleNamespace(
            topic=lambda _: SimpleNamespace(options=options), partitions={}, brokers={}
        )
        cluster = SimpleNamespace(
            decided=SimpleNamespace(state=state), host_of=lambda one: f"broker-{one}"
        )
        self.rules = SubscriptionRules(cast(SimulatedCluster, cluster), self._break)
        self.epoch = 1
        self.load({})

    def _break(self, rule: str, text: str, event: Event, *others: Event) -> None:
        assert SID in text
        self.broken.append(rule)

    def come(self, step: type[Step], **facts: Any) -> None:  # noqa: ANN401
        event = step_event(step, partition=0, epoch=self.epoch, **facts)
        self._take(event)

    def prepare(self, step: type[Step]) -> None:
        """Another broker is to lead."""
        self._take(step_event(step, partition=0))

    def say(self, what: str, **facts: Any) -> None:  # noqa: ANN401
        facts = {"sid": SID, "topic": TOPIC, "partition": 0, **facts}
        self._take(Event(0, 0.0, "member-1", 1, what, facts))

    def _take(self, event: Event) -> None:
        handler = self.rules.handlers.of(event)
        assert handler is not None
        handler(event)

    def fail(self, action: Damage | Wipe | BitFlip | RollBack) -> None:
        """The disk of the leader is harmed."""
        self._take(Event(0, 0.0, "broker-1", 1, FAULT, {"action": action}))

    def replace_disk(self) -> None:
        """The leader gets an empty one."""
        self._take(Event(0, 0.0, "broker-1", 1, WIPE, {}))

    def load(self, states: dict[str, Any]) -> None:
        self.come(steps.S13Loaded, states=states)

    def commit(self, key: str, **value: Any) -> None:  # noqa: ANN401
        self.come(steps.S10Hearing, key=key, value=value)

    def mark(self, mark: int, claim: int, *, commit: bool = True) -> None:
        """The leader stores a mark."""
        where = {"sid": SID, "topic": TOPIC, "topic_id": "0a"}
        self.come(steps.S9Storing, **where, mark=mark, claim=claim)
        if commit:
            self.commit(MARK, mark=mark, claim=claim)

    def assign(self, member: str, claim: int) -> None:
        self.commit(f"a/{SID}/0", phase="assigned", member=member, claim=claim)

    def attach(self, mark: int, claim: int) -> None:
        self.mark(mark, claim)
        member = self.rules._members[SID, PartitionId(0), claim]
        self.come(steps.S5Attaching, sid=SID, member=member, claim=claim, mark=mark)

    def hand(self, offset: int, claim: int, member: str = "m1") -> None:
        """Messages have ten bytes each."""
        facts = {"claim": claim, "member": member, "offset": offset, "next_offset": offset + 10}
        self.say(HANDED, **facts)

    def process(self, offset: int, claim: int, member: str = "m1") -> None:
        self.hand(offset, claim, member)
        facts = {"claim": claim, "member": member, "offset": offset, "next_offset": offset + 10}
        self.say(PROCESSED, **facts)


@pytest.fixture
def judged() -> Judged:
    """After the first member has processed two messages, of which one is marked."""
    one = Judged()
    one.commit(f"m/{SID}/m1")
    one.assign("m1", 1)
    one.come(steps.S4Telling, sid=SID, member="m1", logs=[[0, 1]], revoked=False)
    one.attach(0, 1)
    one.process(0, 1)
    one.process(10, 1)
    one.mark(10, 1)
    assert one.broken == []
    return one


def test_a_member_that_is_replaced_and_a_reset_break_no_rule(judged: Judged) -> None:
    judged.mark(20, 1)
    judged.say(CONFIRMED, claim=1, offset=20)
    judged.commit(f"a/{SID}/0", claim=1)
    judged.assign("m2", 2)
    judged.attach(20, 2)
    judged.process(20, 2, "m2")
    judged.process(20, 1)  # late: its mark won't be taken
    judged.commit(f"a/{SID}/0", phase="resetting", claim=3, reset_to=0)
    judged.mark(0, 3)
    judged.commit(f"a/{SID}/0", claim=3)
    judged.assign("m1", 4)
    judged.attach(0, 4)
    judged.process(0, 4)
    judged.epoch = 2
    judged.load(
        {
            MARK: {"mark": 0, "claim": 4},
            f"m/{SID}/m1": {},
            f"a/{SID}/0": {"phase": "assigned", "member": "m1", "claim": 4},
        }
    )
    judged.attach(0, 4)
    judged.mark(10, 4)
    assert judged.broken == []


def test_a_new_member_takes_over_at_the_messages_processed_before(
    judged: Judged,
) -> None:
    judged.mark(20, 2)
    assert judged.broken == []
    judged.mark(30, 2)
    assert judged.broken == ["message-passed-over"]


def test_a_mark_behind_a_delivered_but_unprocessed_message_is_found(judged: Judged) -> None:
    judged.hand(20, 1)
    judged.mark(30, 1, commit=False)
    assert judged.broken == ["message-passed-over"]


def test_a_mark_that_counts_though_its_claim_is_an_older_one_is_found(judged: Judged) -> None:
    judged.mark(20, 2)
    judged.process(20, 1)
    judged.mark(30, 2, commit=False)
    assert judged.broken == ["message-passed-over"]


def test_a_gap_between_messages_is_found(judged: Judged) -> None:
    judged.hand(30, 1)
    assert judged.broken == ["message-left-out"]


def test_a_member_that_begins_behind_its_mark_is_found(judged: Judged) -> None:
    judged.commit(f"a/{SID}/0", claim=1)
    judged.assign("m2", 2)
    judged.attach(10, 2)
    judged.hand(20, 2, "m2")
    assert judged.broken == ["message-left-out"]


def test_a_mark_that_goes_back_without_a_reset_is_found(judged: Judged) -> None:
    judged.mark(0, 1)
    assert judged.broken == ["mark-went-back"]


@pytest.mark.parametrize(
    "value",
    [
        {"phase": "assigned", "member": "m2", "claim": 1},
        {"phase": "resetting", "claim": 1, "reset_to": 0},
        {"claim": 0},
    ],
)
def test_a_claim_that_is_given_again_is_found(judged: Judged, value: dict[str, Any]) -> None:
    judged.commit(f"a/{SID}/0", claim=1)
    judged.commit(f"a/{SID}/0", **value)
    assert judged.broken == ["claim-went-back"]


def test_a_mark_that_is_stored_with_an_older_claim_is_found(judged: Judged) -> None:
    judged.mark(10, 2)
    judged.mark(10, 1)
    assert judged.broken == ["claim-went-back"]


def test_two_members_with_one_claim_are_found(judged: Judged) -> None:
    judged.hand(20, 1, "m2")
    assert judged.broken == ["claim-went-back"]


def test_a_member_that_attaches_with_the_claim_of_another_one_is_found(judged: Judged) -> None:
    judged.come(steps.S5Attaching, sid=SID, member="m2", claim=1, mark=10)
    assert judged.broken == ["claim-went-back"]


def test_a_log_that_moves_before_it_is_released_is_found(judged: Judged) -> None:
    judged.assign("m2", 2)
    assert judged.broken == ["log-taken-unreleased"]


def test_an_attach_that_is_told_an_older_mark_is_found(judged: Judged) -> None:
    judged.come(steps.S5Attaching, sid=SID, member="m1", claim=1, mark=10)
    judged.come(steps.S5Attaching, sid=SID, member="m1", claim=1, mark=0)
    assert judged.broken == ["attach-went-back"]


def test_telling_an_uncommitted_decision_is_found(judged: Judged) -> None:
    judged.come(steps.S5Attaching, sid=SID, member="m1", claim=1, mark=20)
    judged.come(steps.S5Attaching, sid=SID, claim=2, mark=20)
    judged.come(steps.S4Telling, sid=SID, member="m1", logs=[[0, 2]], revoked=False)
    judged.come(steps.S4Telling, sid=SID, member="m2", logs=[], revoked=False)
    judged.say(CONFIRMED, claim=1, offset=20)
    assert judged.broken == ["told-uncommitted"] * 5


@pytest.mark.parametrize(
    "mark", [None, {"mark": 10, "claim": 0}, {"mark": 0, "claim": 1}, {"mark": 20, "claim": 1}]
)
def test_a_leader_that_begins_without_committed_entries_is_found(
    judged: Judged, mark: dict[str, Any] | None
) -> None:
    states = dict(judged.rules._partitions[PartitionId(0)].committed)
    del states[MARK]
    judged.epoch = 2
    judged.load(states if mark is None else {**states, MARK: mark})
    assert judged.broken == ["state-forgotten"]


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_mark_that_is_left_behind_by_an_orderly_change_of_leaders_is_found(
    judged: Judged, is_stored: bool
) -> None:
    state = judged.rules.cluster.decided.state
    state.partitions[PartitionId(0)] = cast(Any, SimpleNamespace(leader=1, epoch=1))
    judged.come(steps.S8Taking, sid=SID, offset=20)
    judged.prepare(steps.E23Preparing)
    if is_stored:
        judged.mark(20, 1)
    judged.prepare(steps.E23Prepared)
    assert judged.broken == ([] if is_stored else ["mark-left-behind"])


@pytest.mark.parametrize("is_appending_again", [False, True])
@pytest.mark.parametrize("is_only_replica", [False, True])
def test_a_leader_whose_disk_takes_no_records_may_leave_a_mark_behind(
    judged: Judged, is_appending_again: bool, is_only_replica: bool
) -> None:
    state = judged.rules.cluster.decided.state
    state.partitions[PartitionId(0)] = cast(Any, SimpleNamespace(leader=1, epoch=1))
    if is_only_replica:  # it doesn't resign
        judged.come(steps.P9Refusing, status=Status.LOG_READ_ONLY)
    else:
        judged.come(steps.E19Resigning)
    if is_appending_again:
        judged.come(steps.P2Appended)
    judged.come(steps.S8Taking, sid=SID, offset=20)
    judged.prepare(steps.E23Preparing)
    judged.prepare(steps.E23Prepared)
    assert judged.broken == (["mark-left-behind"] if is_appending_again else [])


@pytest.mark.parametrize(
    "action", [Damage("older", "ends"), Damage("flip", "log"), BitFlip(), RollBack()]
)
def test_a_leader_may_lack_entries_that_its_disk_lost_unnoticed(
    judged: Judged, action: Damage | BitFlip | RollBack
) -> None:
    judged.fail(action)
    judged.epoch = 2
    judged.load({})
    judged.mark(10, 1)
    judged.mark(0, 2)  # its messages are gone, too, and others stand in their place
    assert judged.broken == []


def test_a_damaged_sole_replica_serves_the_entries_before_the_damage(judged: Judged) -> None:
    state = judged.rules.cluster.decided.state
    only = SimpleNamespace(partition=PartitionId(0), replicas=[1])
    state.partitions[PartitionId(0)] = cast(Any, only)
    judged.fail(Damage("flip", "tail"))
    judged.epoch = 2
    judged.load({})
    assert judged.broken == []


def test_a_leader_with_a_new_disk_is_judged_again(judged: Judged) -> None:
    judged.fail(RollBack())
    judged.replace_disk()
    judged.epoch = 2
    judged.load({})
    assert judged.broken == ["state-forgotten"]


@pytest.mark.parametrize("action", [Damage("cut", "log"), Damage("missing", "ends"), Wipe()])
def test_a_leader_that_can_notice_a_damage_is_judged(judged: Judged, action: Damage | Wipe) -> None:
    judged.fail(action)
    judged.epoch = 2
    judged.load({})
    assert judged.broken == ["state-forgotten"]


def test_a_leader_may_begin_with_what_its_predecessor_appended_last(judged: Judged) -> None:
    judged.mark(20, 1, commit=False)
    states = dict(judged.rules._partitions[PartitionId(0)].committed)
    judged.epoch = 2
    judged.load({**states, MARK: {"mark": 20, "claim": 1}})
    assert judged.broken == []
    judged.epoch = 1
    judged.commit(MARK, mark=0, claim=1)  # a leader that was replaced knows nothing new
    assert judged.broken == []


def test_a_leader_may_begin_with_what_it_appended_before_another_one_led(judged: Judged) -> None:
    judged.mark(10, 1)
    states = dict(judged.rules._partitions[PartitionId(0)].committed)
    judged.mark(20, 1, commit=False)
    judged.epoch = 2
    judged.load(states)  # its log hasn't the newer mark, and it commits nothing
    judged.epoch = 3
    judged.load({**states, MARK: {"mark": 20, "claim": 1}})
    assert judged.broken == []


def test_a_leader_may_begin_with_what_it_appended_while_another_one_led(judged: Judged) -> None:
    judged.mark(10, 1)
    states = dict(judged.rules._partitions[PartitionId(0)].committed)
    judged.epoch = 2
    judged.load(states)  # it commits nothing
    judged.epoch = 1
    judged.come(steps.S12Removing, key=MARK)
    judged.mark(20, 1, commit=False)
    judged.epoch = 3
    judged.load({**states, MARK: {"mark": 20, "claim": 1}})
    assert judged.broken == []


def test_entries_of_a_former_leader_are_gone_once_a_newer_leader_commits(judged: Judged) -> None:
    judged.mark(10, 1)
    states = dict(judged.rules._partitions[PartitionId(0)].committed)
    judged.mark(20, 1, commit=False)
    judged.epoch = 2
    judged.load(states)
    judged.mark(15, 1)
    judged.epoch = 3
    judged.load({**states, MARK: {"mark": 20, "claim": 1}})
    assert judged.broken == ["state-forgotten"]
