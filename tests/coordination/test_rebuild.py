"""A register that knows too little decides nothing before it knows enough."""

import attrs
import pytest

from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import NotReadyError, RefusedError, Status, UnknownTopicError
from octopi.identifiers import PartitionId
from octopi.wire.messages import (
    AcceptEpoch,
    AlterInSync,
    Inventory,
    PartitionRecord,
    ReplicaReport,
    TopicOptions,
    TopicRecord,
)
from tests.coordination.joins import SEALS, SECRET, join
from tests.coordination.journaled import JournaledController

CLUSTER = "00c1a5735eed0001"
OLD = PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2, 3])
NEW = attrs.evolve(OLD, version=1, in_sync=[1, 2])


class Register(JournaledController):
    """A register with an empty disk, and brokers that come back to it."""

    def __init__(self) -> None:
        super().__init__(Controller(4, 3))
        self.persist(self.controller.form(CLUSTER, "second", 2, secret=SECRET))

    def join(
        self,
        broker: int,
        told: PartitionRecord,
        *,
        promised: int = 3,
        intact: bool = True,
        incarnation: int = 1,
    ) -> None:
        inventory = Inventory([told], [], [ReplicaReport(0, promised, intact)])
        admission = self.controller.admit(join(broker, incarnation, cluster=CLUSTER), [inventory])
        self.persist(admission)
        self.controller.admitted(admission)

    @property
    def known(self) -> PartitionRecord | None:
        return self.controller.state.partitions.get(PartitionId(0))


def test_a_record_is_adopted_when_all_its_in_sync_members_have_reported() -> None:
    register = Register()
    register.join(3, OLD)
    register.join(2, OLD)
    assert register.known is None, "1 may have been told something newer"
    register.join(1, NEW)
    assert register.known == NEW


def test_an_operator_has_a_record_adopted_though_a_broker_is_lost_that_has_not_reported() -> None:
    register = Register()
    register.join(3, OLD, promised=7)
    register.join(2, OLD)
    controller, partition = register.controller, PartitionId(0)
    assert controller.missing_reports(partition) == [1]
    assert controller.missing_reports(PartitionId(1)) == []
    adoption = controller.adopt_unreported(partition)
    assert controller.missing_reports(partition) == [1], "nothing changes before it is journaled"
    register.persist(adoption)
    controller.adopted(adoption)
    assert register.known == OLD
    assert controller.missing_reports(partition) == []
    assert controller.state.announced_epoch(partition) >= 7
    assert controller.elections.begin(partition).epoch > 7
    register.join(1, OLD)  # it was not lost after all
    assert register.known == OLD


def test_a_record_is_known_when_its_in_sync_replicas_have_reported() -> None:
    register = Register()
    register.join(1, NEW)
    assert register.known is None
    register.join(2, OLD)
    assert register.known == NEW
    register.join(3, OLD)
    assert register.known == NEW


def test_a_broker_that_lost_its_disk_does_not_count_as_having_reported() -> None:
    register = Register()
    register.join(1, NEW)
    register.record(register.controller.admit(join(2, cluster=""), []).entries)
    assert register.known is None, "2 may have been told something newer, once"


def test_a_broker_that_may_hold_replicas_is_not_removed() -> None:
    register = Register()
    register.join(3, OLD)
    register.join(1, OLD)
    register.controller.left(3, 1)
    with pytest.raises(RefusedError, match="may hold replicas"):
        register.controller.remove(3)


def test_nothing_is_decided_about_a_partition_whose_record_is_unknown() -> None:
    register = Register()
    register.join(1, NEW)
    with pytest.raises(RefusedError, match=r"brokers \[2\] have not told"):
        register.controller.topics.create("a", "1" * 16, partitions=[0], options=TopicOptions())
    assert register.controller.elections.leaderless() == []
    request = AlterInSync(0, 3, 1, 1, 1, [1], None)
    assert register.controller.elections.alter(request) is None


def test_no_topic_is_called_unknown_before_all_brokers_have_reported() -> None:
    register = Register()
    register.join(1, NEW)
    with pytest.raises(NotReadyError, match=r"brokers \[2\] have not told"):
        register.controller.topics.require("a")
    register.join(2, NEW)
    with pytest.raises(UnknownTopicError):
        register.controller.topics.require("a")


def test_a_reported_topic_with_an_unknown_partition_is_not_ready_rather_than_unknown() -> None:
    register = Register()
    topic = TopicRecord("a", "0" * 16, [0, 1], TopicOptions())
    inventory = Inventory([NEW], [topic], [ReplicaReport(0, 3, True)])
    for broker in (1, 2):
        admission = register.controller.admit(join(broker, 1, cluster=CLUSTER), [inventory])
        register.persist(admission)
        register.controller.admitted(admission)
    assert register.known == NEW
    with pytest.raises(NotReadyError, match="brokers that hold it have not told"):
        register.controller.topics.require("a")


def test_the_next_epoch_is_above_every_promised_one() -> None:
    register = Register()
    register.join(1, NEW, promised=7)
    register.join(2, NEW, promised=5)
    announcement = register.controller.elections.announcement(0)
    assert announcement is not None
    assert announcement.epoch == 8, "7 may have been decided by the register that is gone"
    register.join(3, OLD, promised=9)
    announcement = register.controller.elections.announcement(0)
    assert announcement is not None
    assert announcement.epoch == 10


def test_a_replica_that_lost_power_leaves_the_in_sync_set_when_the_record_is_adopted() -> None:
    register = Register()
    register.join(2, NEW, intact=False)
    register.join(1, NEW)
    assert register.known == attrs.evolve(NEW, version=2, in_sync=[1], lost=[2])


def test_all_replicas_have_to_report_if_the_in_sync_set_is_empty() -> None:
    register = Register()
    empty = attrs.evolve(NEW, version=4, in_sync=[])
    register.join(1, empty)
    register.join(2, empty)
    assert register.known is None
    register.join(3, empty)
    assert register.known == empty


def test_the_last_in_sync_replicas_are_enough_to_report_if_they_are_known() -> None:
    register = Register()
    empty = attrs.evolve(NEW, version=4, in_sync=[], lost=[1, 2])
    register.join(1, empty)
    assert register.known is None
    register.join(2, empty)
    assert register.known == empty


def test_an_older_copy_of_the_journal_yields_to_a_newer_record_of_a_broker() -> None:
    register = Register()
    register.record([PartitionDecided(OLD)])
    register.join(3, OLD)
    register.join(2, SEALS.of_partition(attrs.evolve(NEW, epoch=4, leader=2)), promised=4)
    assert register.known == OLD
    register.join(1, OLD, promised=4)
    assert register.known is not None
    assert (register.known.epoch, register.known.leader) == (4, 2)


def test_a_register_that_restarts_during_a_rebuild_hears_all_brokers_again() -> None:
    register = Register()
    register.join(1, NEW)
    again = Register()
    again.controller, again.journal = Controller(4, 3), []
    again.record(register.journal)
    again.join(2, OLD)
    assert again.known is None
    again.join(1, NEW)
    assert again.known == NEW
    assert again.controller.state.life.generation == 2


def test_an_election_after_a_rebuild_goes_on_as_usual() -> None:
    register = Register()
    register.join(1, NEW, promised=4)
    register.join(2, NEW)
    elections = register.controller.elections
    assert elections.accept(AcceptEpoch(0, 5, 2, 1, 3, 3, []))
    assert not elections.accept(AcceptEpoch(0, 5, 1, 9, 3, 3, [])), "not the registered life"
    assert not elections.is_complete(0)
    register.persist(elections.conclude(0))
    assert register.known is not None
    assert (register.known.epoch, register.known.leader, register.known.in_sync) == (5, 2, [2])


def reporting(broker: int, told: PartitionRecord, topics: list[TopicRecord]) -> Inventory:
    return Inventory([told], topics, [ReplicaReport(0, told.epoch, True)])


def test_a_report_whose_entries_were_not_journaled_does_not_count() -> None:
    """The disk was full: broker 1, alone in sync, comes again, and nobody leads before."""
    register = Register()
    alone = attrs.evolve(OLD, version=2, in_sync=[1])
    topic = TopicRecord("a", "0" * 16, [0], TopicOptions())
    asked = [
        register.controller.admit(join(1, cluster=CLUSTER), [reporting(1, alone, [topic])])
        for _ in range(2)
    ]
    assert asked[0].entries == asked[1].entries
    assert register.controller.state.topic("a") is None
    register.join(2, OLD)
    register.join(3, OLD)
    assert register.known is None, "1 has not reported: what it said was not kept"
    with pytest.raises(NotReadyError, match=r"brokers \[1\] have not told"):
        register.controller.topics.require("a")
    register.record(asked[0].entries[:0])
    register.join(1, alone)
    assert register.known == alone


def test_an_acceptance_counts_until_the_next_start_of_its_broker_is_in_the_journal() -> None:
    register = Register()
    register.join(1, NEW, promised=4)
    register.join(2, NEW)
    elections = register.controller.elections
    assert elections.accept(AcceptEpoch(0, 5, 2, 1, 3, 3, []))
    register.controller.left(2, 1)
    register.controller.admit(join(2, 2, cluster=CLUSTER), [])
    register.controller.joined(2, 1)
    assert elections.conclude(0), "its next life was not let in"


def test_nothing_is_decided_from_an_older_record_than_a_broker_knows() -> None:
    """The journal is an older copy: in epoch 4 only broker 2 was in sync."""
    register = Register()
    register.record([PartitionDecided(OLD)])
    register.join(3, OLD)
    newer = attrs.evolve(OLD, epoch=4, leader=2, in_sync=[1, 2])
    register.join(2, SEALS.of_partition(newer), promised=4)
    elections = register.controller.elections
    assert elections.leaderless() == []
    assert elections.announcement(0) is None
    with pytest.raises(NotReadyError, match="told something newer"):
        elections.begin(0)
    assert elections.alter(AlterInSync(0, 3, 1, 1, 0, [1, 3], None)) is None
    register.join(1, OLD, intact=False, incarnation=2)
    assert register.known == attrs.evolve(newer, version=1, in_sync=[2], lost=[1])


def test_an_election_that_began_with_an_older_record_does_not_end_with_it() -> None:
    register = Register()
    register.record([PartitionDecided(OLD)])
    register.join(3, OLD)
    elections = register.controller.elections
    register.persist(elections.begin(0))
    assert elections.accept(AcceptEpoch(0, 4, 3, 1, 3, 3, []))
    newer = attrs.evolve(OLD, epoch=4, leader=2, in_sync=[2, 1])
    register.join(2, SEALS.of_partition(newer), promised=4)
    assert elections.conclude(0) is None


def test_a_sole_replica_that_joined_before_its_record_was_known_leads() -> None:
    register = Register()
    register.join(2, OLD, incarnation=5)
    register.join(1, attrs.evolve(NEW, replicas=[2], in_sync=[2], leader=2, leader_incarnation=4))
    assert register.known is not None
    assert (register.known.epoch, register.known.leader_incarnation) == (4, 5)


@pytest.mark.parametrize(
    "inventory",
    [
        Inventory([attrs.evolve(OLD, partition=1 << 40)], []),
        Inventory([attrs.evolve(OLD, epoch=(1 << 63) - 1)], []),
        Inventory([attrs.evolve(OLD, epoch=0)], []),
        Inventory([attrs.evolve(OLD, recovered_epoch=4)], []),
        Inventory([attrs.evolve(OLD, replicas=[])], []),
        Inventory([attrs.evolve(OLD, replicas=[1, 1, 2, 3])], []),
        Inventory([attrs.evolve(OLD, leader=4)], []),
        Inventory([attrs.evolve(OLD, in_sync=[4])], []),
        Inventory([attrs.evolve(OLD, lost=[4])], []),
        Inventory([], [TopicRecord("../a", "0" * 16, [0], TopicOptions())]),
        Inventory([], [TopicRecord("a", "0" * 16, [], TopicOptions())]),
        Inventory([], [TopicRecord("a", "0" * 16, [0, 0], TopicOptions())]),
        Inventory([], [TopicRecord("a", "0" * 16, [1 << 40], TopicOptions())]),
        Inventory([], [], [ReplicaReport(0, (1 << 63) - 1, True)]),
    ],
)
def test_a_report_of_an_impossible_decision_is_refused_and_changes_nothing(
    inventory: Inventory,
) -> None:
    register = Register()
    with pytest.raises(RefusedError, match="no register ever decided") as caught:
        register.controller.admit(join(1, cluster=CLUSTER), [inventory])
    assert caught.value.status == Status.MALFORMED_MESSAGE
    register.join(1, NEW)
    register.join(2, NEW)
    assert register.known == NEW


def a_topic(topic_id: str, replaces: list[str] | None = None) -> TopicRecord:
    return TopicRecord("orders", topic_id * 16, [0], TopicOptions(), replaces=replaces or [])


DELETED = a_topic("1")
NEWER = a_topic("2", [DELETED.topic_id])


def report(
    register: Register, broker: int, topic: TopicRecord, told: PartitionRecord = OLD
) -> list[str]:
    admission = register.controller.admit(
        join(broker, cluster=CLUSTER), [reporting(broker, told, [topic])]
    )
    register.persist(admission)
    register.controller.admitted(admission)
    return admission.conflicts


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (1, 3, 2)])
def test_a_deleted_topic_that_a_register_without_memory_hears_of_is_removed_from_its_broker(
    order: tuple[int, ...],
) -> None:
    register = Register()
    for broker in order:
        told, topic = (OLD, DELETED) if broker == 3 else (NEW, NEWER)
        assert report(register, broker, topic, told) == []
    assert register.controller.topics.require("orders").topic_id == NEWER.topic_id
    assert [one.topic_id for one in register.controller.view.removals_of(3)] == [DELETED.topic_id]
    assert register.controller.view.removals_of(1) == []
    snapshot = Controller(4, 3)
    for entry in register.controller.state.entries():
        snapshot.apply(entry)
    assert snapshot.view.removals_of(3) == register.controller.view.removals_of(3)
    register.persist(register.controller.removed(DELETED.topic_id, 3))
    assert register.controller.view.removals_of(3) == []


def test_two_topics_of_one_name_are_both_kept_if_neither_is_proved_to_be_deleted() -> None:
    register = Register()
    stranger = a_topic("3")
    report(register, 1, NEWER, NEW)
    report(register, 2, NEWER, NEW)
    (conflict,) = report(register, 3, stranger)
    assert "they are kept, but not served" in conflict
    assert register.controller.view.removals_of(3) == []


def test_a_deleted_topic_that_is_in_use_again_is_not_removed() -> None:
    """It may hold messages that were acknowledged since the register knows it again."""
    register = Register()
    alone = attrs.evolve(OLD, in_sync=[3])
    report(register, 3, DELETED, alone)
    (conflict,) = report(register, 1, NEWER, alone)
    assert "they are kept, but not served" in conflict
    assert register.controller.topics.require("orders").topic_id == DELETED.topic_id
    assert register.controller.view.removals_of(3) == []


def test_a_topic_knows_which_deleted_ones_of_its_name_brokers_still_hold() -> None:
    register = Register()
    for broker in (1, 2, 3):
        report(register, broker, DELETED)
    register.persist(register.controller.topics.delete("orders"))
    creation = register.controller.topics.create(
        "orders", "4" * 16, partitions=[0], options=TopicOptions()
    )
    register.persist(creation)
    assert creation.topic.replaces == [DELETED.topic_id]
