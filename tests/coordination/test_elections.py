"""Leaders and in-sync sets of partitions, decided by a register over its journal."""

from typing import Any

import attrs
import pytest

from octopi.coordination.controller import Controller
from octopi.coordination.election import Election, ElectionGoal, LogLoss
from octopi.coordination.elections import Elections
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import RefusedError, Status
from octopi.wire.messages import (
    AcceptEpoch,
    AlterInSync,
    BrokerStatus,
    Inventory,
    LogEnd,
    PartitionRecord,
    ReplicaReport,
    TopicOptions,
)
from tests.coordination.joins import REGISTER, SECRET, join
from tests.coordination.journaled import JournaledController

TOPIC_ID = "1" * 16


class Register(JournaledController):
    """A register of a cluster with three brokers, which journals what it decides."""

    def __init__(self) -> None:
        super().__init__(Controller(3, 3))
        self.persist(self.controller.form("00c1a5735eed0001", REGISTER.nonce, secret=SECRET))
        for broker in (1, 2, 3):
            self.join(broker, 1)
        options = TopicOptions(min_insync=2)
        topics = self.controller.topics
        self.persist(topics.create("a", TOPIC_ID, partition_count=3, options=options))

    def join(
        self,
        broker: int,
        incarnation: int,
        *,
        intact: bool = True,
        cluster: str | None = None,
        **copy: Any,  # noqa: ANN401
    ) -> None:
        self.controller.left(broker, incarnation - 1)
        if cluster is None:  # brokers remember it with their data
            cluster = self.controller.state.cluster
        standings = [ReplicaReport(partition, 1, intact) for partition in range(3)]
        admission = self.controller.admit(
            join(broker, incarnation, cluster=cluster, **copy), [Inventory([], [], standings)]
        )
        self.persist(admission)
        self.controller.admitted(admission)

    def accept(self, broker: int, incarnation: int = 1, epoch: int = 2, log_end: int = 0) -> bool:
        ends = [LogEnd(TOPIC_ID, log_end)]
        message = AcceptEpoch(0, epoch, broker, incarnation, 1, 1, ends)
        return self.controller.elections.accept(message) is not None

    @property
    def first(self) -> PartitionRecord:
        return self.controller.state.partitions[0]


def test_partitions_get_replicas_on_all_brokers_and_leaders_evenly() -> None:
    records = Register().controller.state.partitions.values()
    assert sorted(record.leader for record in records) == [1, 2, 3]
    for record in records:
        assert sorted(record.replicas) == record.in_sync == [1, 2, 3]
        assert record.replicas[0] == record.leader


def test_partitions_of_a_lost_leader_are_leaderless_until_an_election_begins() -> None:
    register = Register()
    assert register.controller.elections.leaderless() == []
    lost = register.first.leader
    register.controller.left(lost, 1)
    assert register.controller.elections.leaderless() == [0]
    register.persist(register.controller.elections.begin(0))
    assert register.controller.elections.leaderless() == []


def test_an_election_is_complete_when_all_live_replicas_have_accepted() -> None:
    register = Register()
    elections = register.controller.elections
    lost = register.first.leader
    register.controller.left(lost, 1)
    assert not elections.is_complete(0)
    register.persist(elections.begin(0))
    others = [one for one in (1, 2, 3) if one != lost]
    assert register.accept(others[0])
    assert not elections.is_complete(0)
    assert register.accept(others[1], log_end=5)
    assert elections.is_complete(0)
    register.persist(elections.conclude(0))
    assert (register.first.epoch, register.first.leader) == (2, others[1])
    assert register.first.in_sync == others
    assert not register.accept(lost), "the change is over"


def test_a_broker_that_accepts_and_leaves_before_the_choice_is_neither_leader_nor_in_sync() -> None:
    register = Register()
    elections = register.controller.elections
    register.persist(elections.begin(0))
    for broker in (1, 2, 3):
        assert register.accept(broker, log_end=broker)
    register.controller.left(3, 1)
    register.persist(elections.conclude(0, goal=ElectionGoal(leader=3)))
    assert (register.first.leader, register.first.in_sync) == (2, [1, 2])


def test_a_topics_min_insync_holds_through_a_change() -> None:
    register = Register()
    register.persist(register.controller.elections.begin(0))
    assert register.accept(2)
    register.persist(register.controller.elections.conclude(0))
    assert register.first.in_sync == [1, 2, 3]


def test_a_restarted_broker_has_to_accept_again() -> None:
    register = Register()
    register.persist(register.controller.elections.begin(0))
    assert register.accept(2)
    register.join(2, 2)
    assert register.controller.elections.conclude(0) is None
    assert not register.accept(2, incarnation=1)
    assert register.accept(2, incarnation=2)
    register.persist(register.controller.elections.conclude(0))
    assert register.first.leader_incarnation == 2


def test_a_restarted_register_goes_on_with_the_change_from_journal_or_snapshot() -> None:
    register = Register()
    register.persist(register.controller.elections.begin(0))
    register.persist(register.controller.elections.begin(0))
    for entries in (register.journal, register.controller.state.entries()):
        fresh = Controller(9)
        for entry in entries:
            fresh.apply(entry)
        fresh.check_invariants()
        announcement = fresh.elections.announcement(0)
        assert announcement is not None
        assert announcement.epoch == 3
        assert fresh.elections.announcement(1) is None


def test_a_leaders_request_is_journaled_and_answered() -> None:
    register = Register()
    leader = register.first.leader
    others = [one for one in (1, 2, 3) if one != leader]
    request = AlterInSync(0, 1, leader, 1, 0, sorted([leader, others[0]]), None)
    judged = register.controller.elections.alter(request)
    assert judged is not None
    register.persist(judged)
    assert judged.answer.accepted
    assert judged.answer.record == register.first
    again = register.controller.elections.alter(request)
    assert again is not None
    assert again.entries == []
    assert not again.answer.accepted


def test_a_broker_with_a_new_data_directory_leaves_the_in_sync_set() -> None:
    register = Register()
    assert register.first.in_sync == [1, 2, 3]
    register.join(2, 2, cluster="")
    assert register.first.in_sync == [1, 3]


def test_a_broker_with_an_older_copy_of_its_directory_leaves_the_in_sync_set() -> None:
    """The copy was made after the first start, the broker was started once more."""
    register = Register()
    register.join(2, 2)
    register.controller.left(2, 2)
    before = register.first
    with pytest.raises(RefusedError, match="older copy") as caught:
        register.join(2, 2, copy="'", copied_at=1)
    assert caught.value.status == Status.BROKER_FENCED
    assert register.first == before
    register.join(2, 3, copy="'", copied_at=1)
    assert register.first.in_sync == [1, 3]
    register.controller.left(2, 3)
    with pytest.raises(RefusedError, match="older copy"):
        register.join(2, 3)


def test_a_broker_with_the_newest_copy_of_its_directory_stays_in_sync() -> None:
    register = Register()
    register.controller.left(2, 1)
    register.join(2, 2, copy="'", copied_at=1)
    assert register.first.in_sync == [1, 2, 3]


def test_a_broker_that_started_often_without_the_register_stays_in_sync() -> None:
    register = Register()
    register.controller.left(2, 1)
    register.join(2, 60)
    assert register.first.in_sync == [1, 2, 3]


def test_after_all_replicas_lost_power_one_leads_as_soon_as_all_are_back() -> None:
    register = Register()
    elections = register.controller.elections
    for broker in (1, 2, 3):
        register.join(broker, 2, intact=False)
    assert (register.first.in_sync, register.first.lost) == ([], [1, 2, 3])
    assert elections.leaderless() == [0, 1, 2]
    register.persist(elections.begin(0))
    for broker in (1, 2):
        assert elections.conclude(0) is None
        assert 3 in elections.waits_for(0)
        assert register.accept(broker, 2, log_end=broker)
    assert elections.conclude(0) is None
    assert elections.waits_for(0) == [3]
    assert not elections.is_stuck(0)
    assert register.accept(3, 2)
    assert elections.waits_for(0) == []
    decided = elections.conclude(0)
    assert decided is not None
    assert decided.losses == []
    register.persist(decided)
    first = register.first
    assert (first.leader, first.in_sync, first.lost) == (2, [2], [])
    assert first.recovered_epoch == first.epoch == 2


def test_an_operator_can_order_an_election_not_to_wait_for_an_absent_replica() -> None:
    register = Register()
    elections = register.controller.elections
    for broker in (1, 2, 3):
        register.join(broker, 2, intact=False)
    register.controller.left(3, 2)
    register.persist(elections.begin(0))
    assert elections.conclude(0, ordered=True) is None
    assert register.accept(1, 2, log_end=7)
    register.persist(elections.conclude(0, ordered=True))
    assert (register.first.leader, register.first.recovered_epoch) == (1, 2)


def test_a_partition_begins_again_empty_only_while_no_broker_with_a_replica_lives() -> None:
    register = Register()
    elections = register.controller.elections
    register.join(4, 1, cluster="")
    for broker in (1, 2, 3):
        assert elections.begin_empty(0, 4) is None
        register.controller.left(broker, 1)
    assert elections.begin_empty(0, 4) is None, "no epoch is announced"
    register.persist(elections.begin(0))
    decision = elections.begin_empty(0, 4)
    assert decision is not None
    begun = decision.record
    assert (begun.epoch, begun.recovered_epoch, begun.version) == (2, 2, 0)
    assert (begun.leader, begun.leader_incarnation) == (4, 1)
    assert (begun.replicas, begun.in_sync, begun.lost) == ([4], [4], [])
    assert (decision.losses, decision.joining, decision.ordered) == ([], {4}, True)
    register.persist(decision)
    assert elections.leaderless() == [1, 2]
    register.join(2, 2)
    register.persist(elections.begin(1))
    assert elections.begin_empty(1, 4) is None, "broker 2 is back, with its replica"


def test_a_partition_does_not_begin_again_empty_while_a_broker_may_know_a_newer_record() -> None:
    register = Register()
    doubting = Elections(register.controller.state, {4: 1}, lambda partition: partition == 0)
    for partition in (0, 1):
        doubting.changes[partition] = Election(2)
    assert doubting.begin_empty(0, 4) is None
    assert doubting.begin_empty(1, 4) is not None


def test_a_replica_with_a_new_data_directory_counts_as_replaced_until_it_is_in_sync_again() -> None:
    """Whatever it holds by now: what it had when it was in sync is gone."""
    register = Register()
    elections = register.controller.elections
    register.join(2, 2, cluster="")
    assert register.controller.state.brokers[2].replaced
    assert register.first.lost == [2]
    register.join(2, 3)
    assert register.controller.state.brokers[2].replaced
    for broker in (1, 3):
        register.join(broker, 2, intact=False)
    register.persist(elections.begin(0))
    assert register.accept(2, 3, log_end=999)
    for broker in (1, 3):
        assert register.accept(broker, 2, log_end=5)
    register.persist(elections.conclude(0))
    assert register.first.leader == 1
    for partition in (1, 2):
        record = register.controller.state.partitions[partition]
        register.record([PartitionDecided(attrs.evolve(record, epoch=9, lost=[]))])
    register.join(2, 4)
    assert not register.controller.state.brokers[2].replaced


def test_if_all_in_sync_replicas_lack_flushed_records_an_operator_has_to_decide() -> None:
    register = Register()
    elections = register.controller.elections
    for broker in (1, 2, 3):
        register.join(broker, 2, intact=False)
    register.persist(elections.begin(0))
    for broker in (1, 2, 3):
        damaged = LogEnd(TOPIC_ID, broker, sound=False, held_end=10)
        assert elections.accept(AcceptEpoch(0, 2, broker, 2, 1, 1, [damaged]))
    assert elections.conclude(0) is None
    assert elections.waits_for(0) == []
    assert elections.is_stuck(0)
    decided = elections.conclude(0, ordered=True)
    assert decided is not None
    assert decided.record.leader == 3
    assert decided.losses == [LogLoss(TOPIC_ID, 3, 10)]


def test_a_replica_that_joins_the_in_sync_set_no_longer_counts_as_having_lost_data() -> None:
    register = Register()
    leader = register.first.leader
    (other, _) = [one for one in (1, 2, 3) if one != leader]
    register.join(other, 2, intact=False)
    assert register.first.lost == [other]
    request = AlterInSync(0, 1, leader, 1, register.first.version, [1, 2, 3], 2)
    judged = register.controller.elections.alter(request)
    assert judged is not None
    assert judged.answer.accepted
    assert judged.answer.record.lost == []


def test_a_leader_that_takes_no_records_is_replaced_only_if_another_in_sync_replica_does() -> None:
    register = Register()
    controller, full = register.controller, register.first.leader
    elections, health = controller.elections, controller.health
    others = [one for one in (1, 2, 3) if one != full]
    for broker in (1, 2, 3):
        controller.serves(broker, 1)
    assert elections.stranded() == []
    health.told(full, BrokerStatus("full", None, None, []))
    assert elections.stranded() == [0]
    for broker in others:
        health.told(broker, BrokerStatus("full", None, None, []))
    assert elections.stranded() == []
    health.told(others[1], BrokerStatus("", None, None, []))
    assert 0 in elections.stranded()
    register.persist(elections.begin(0))
    assert 0 not in elections.stranded()
    for broker in (1, 2, 3):
        register.accept(broker, log_end=9 - broker)
    register.persist(elections.conclude(0))
    assert (register.first.leader, register.first.in_sync) == (others[1], [1, 2, 3])


def test_a_broker_that_is_no_replica_accepts_nothing() -> None:
    register = Register()
    asking = join(9, cluster="00c1a5735eed0001", credential="")
    admission = register.controller.admit(asking, [])
    register.persist(admission)
    register.controller.admitted(admission)
    elections = register.controller.elections
    register.controller.left(register.first.leader, 1)
    register.persist(elections.begin(0))
    epoch = register.first.epoch + 1
    far = [LogEnd("0" * 16, 1 << 50)]
    assert elections.accept(AcceptEpoch(0, epoch, 9, 1, 1, 1, far)) is None
    assert elections.changes[0].accepts == {}
