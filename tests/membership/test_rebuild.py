"""A register that knows too little decides nothing before it knows enough."""

import attrs
import pytest

from octopi.errors import NotReadyError, RefusedError, UnknownTopicError
from octopi.membership.entries import Entry, PartitionDecided
from octopi.membership.registrar import Registrar
from octopi.wire.messages import (
    AcceptEpoch,
    AlterInSync,
    Inventory,
    PartitionRecord,
    Standing,
    TopicOptions,
    TopicRecord,
)
from tests.membership.joins import join

CLUSTER = "00c1a5735eed0001"
OLD = PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2, 3])
NEW = attrs.evolve(OLD, version=1, in_sync=[1, 2])


class Register:
    """A register with an empty disk, and brokers that come back to it."""

    def __init__(self) -> None:
        self.registrar = Registrar(4, 3)
        self.journal: list[Entry] = []
        self.record(self.registrar.form(CLUSTER, "second", 2))

    def record(self, entries: list[Entry]) -> None:
        self.journal += entries
        for entry in entries:
            self.registrar.apply(entry)
        self.registrar.check_invariants()

    def join(
        self,
        broker: int,
        told: PartitionRecord,
        *,
        promised: int = 3,
        intact: bool = True,
        incarnation: int = 1,
    ) -> None:
        inventory = Inventory([told], [], [Standing(0, promised, intact)])
        admission = self.registrar.admit(join(broker, incarnation, cluster=CLUSTER), [inventory])
        self.record(admission.entries)
        self.registrar.joined(broker, incarnation)

    @property
    def known(self) -> PartitionRecord | None:
        return self.registrar.state.partitions.get(0)


def test_a_record_is_adopted_when_all_its_in_sync_members_have_reported() -> None:
    register = Register()
    register.join(3, OLD)
    register.join(2, OLD)
    assert register.known is None, "1 may have been told something newer"
    register.join(1, NEW)
    assert register.known == NEW


def test_members_of_the_newest_record_are_enough() -> None:
    register = Register()
    register.join(1, NEW)
    assert register.known is None
    register.join(2, OLD)
    assert register.known == NEW
    register.join(3, OLD)
    assert register.known == NEW


def test_who_lost_its_disk_reports_nothing() -> None:
    register = Register()
    register.join(1, NEW)
    register.record(register.registrar.admit(join(2, cluster=""), []).entries)
    assert register.known is None, "2 may have been told something newer, once"


def test_who_may_hold_something_is_not_forgotten() -> None:
    register = Register()
    register.join(3, OLD)
    register.join(1, OLD)
    register.registrar.left(3, 1)
    with pytest.raises(RefusedError, match="may hold replicas"):
        register.registrar.remove(3)


def test_until_then_nothing_is_decided() -> None:
    register = Register()
    register.join(1, NEW)
    with pytest.raises(RefusedError, match=r"brokers \[2\] have not told"):
        register.registrar.create_topic("a", "1" * 16, partitions=[0], options=TopicOptions())
    assert register.registrar.leaderships.leaderless() == []
    request = AlterInSync(0, 3, 1, 1, 1, [1], None)
    assert register.registrar.leaderships.alter(request) is None


def test_until_then_no_topic_is_unknown() -> None:
    register = Register()
    register.join(1, NEW)
    with pytest.raises(NotReadyError, match=r"brokers \[2\] have not told"):
        register.registrar.require_topic("a")
    register.join(2, NEW)
    with pytest.raises(UnknownTopicError):
        register.registrar.require_topic("a")


def test_a_topic_that_was_told_of_is_not_unknown_while_its_partitions_are() -> None:
    register = Register()
    topic = TopicRecord("a", "0" * 16, [0, 1], TopicOptions())
    inventory = Inventory([NEW], [topic], [Standing(0, 3, True)])
    for broker in (1, 2):
        admission = register.registrar.admit(join(broker, 1, cluster=CLUSTER), [inventory])
        register.record(admission.entries)
        register.registrar.joined(broker, 1)
    assert register.known == NEW
    with pytest.raises(NotReadyError, match="brokers that hold it have not told"):
        register.registrar.require_topic("a")


def test_epochs_continue_above_every_promise() -> None:
    register = Register()
    register.join(1, NEW, promised=7)
    register.join(2, NEW, promised=5)
    announcement = register.registrar.leaderships.announcement(0)
    assert announcement is not None
    assert announcement.epoch == 8, "7 may have been decided by the register that is gone"
    register.join(3, OLD, promised=9)
    announcement = register.registrar.leaderships.announcement(0)
    assert announcement is not None
    assert announcement.epoch == 10


def test_a_member_that_lost_power_is_taken_out_when_the_record_is_adopted() -> None:
    register = Register()
    register.join(2, NEW, intact=False)
    register.join(1, NEW)
    assert register.known == attrs.evolve(NEW, version=2, in_sync=[1])


def test_when_nobody_is_in_sync_all_replicas_have_to_report() -> None:
    register = Register()
    empty = attrs.evolve(NEW, version=4, in_sync=[])
    register.join(1, empty)
    register.join(2, empty)
    assert register.known is None
    register.join(3, empty)
    assert register.known == empty


def test_an_old_copy_of_the_journal_is_distrusted_as_soon_as_somebody_knows_better() -> None:
    register = Register()
    register.record([PartitionDecided(OLD)])
    register.join(3, OLD)
    register.join(2, attrs.evolve(NEW, epoch=4, leader=2), promised=4)
    assert register.known == OLD
    register.join(1, OLD, promised=4)
    assert register.known is not None
    assert (register.known.epoch, register.known.leader) == (4, 2)


def test_a_register_that_restarts_meanwhile_hears_everybody_again() -> None:
    register = Register()
    register.join(1, NEW)
    again = Register()
    again.registrar, again.journal = Registrar(4, 3), []
    again.record(register.journal)
    again.join(2, OLD)
    assert again.known is None
    again.join(1, NEW)
    assert again.known == NEW
    assert again.registrar.state.life.generation == 2


def test_a_change_after_a_rebuild_goes_on_as_ever() -> None:
    register = Register()
    register.join(1, NEW, promised=4)
    register.join(2, NEW)
    leaderships = register.registrar.leaderships
    assert leaderships.accept(AcceptEpoch(0, 5, 2, 1, 3, 3, 100))
    assert not leaderships.accept(AcceptEpoch(0, 5, 1, 9, 3, 3, 100)), "not the registered life"
    assert not leaderships.is_complete(0)
    register.record(leaderships.conclude(0))
    assert register.known is not None
    assert (register.known.epoch, register.known.leader, register.known.in_sync) == (5, 2, [2])
