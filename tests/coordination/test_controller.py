"""What the register decides, and what it remembers of it."""

import contextlib
from typing import Any

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from octopi.coordination import topic_decisions
from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import (
    InvalidTopicError,
    RefusedError,
    Status,
    SupersededError,
    TopicExistsError,
    UnknownTopicError,
)
from octopi.limits import REPLACED_TOPICS_MAX
from octopi.wire.messages import Inventory, RegisterGeneration, TopicOptions, TopicRecord
from tests.coordination.joins import REGISTER, SEALS, SECRET, join
from tests.coordination.journaled import JournaledController

CLUSTER = "00c1a5735eed0001"


class Register(JournaledController):
    """A registrar with the shell's habit: every decision is journaled, then applied."""

    def __init__(self, partitions: int = 4, cluster: str = CLUSTER, generation: int = 1) -> None:
        super().__init__(Controller(partitions))
        self.topics_made = 0
        self.persist(self.controller.form(cluster, REGISTER.nonce, generation, secret=SECRET))

    def join(
        self,
        broker: int | None = None,
        incarnation: int = 1,
        inventory: Inventory | None = None,
        cluster: str | None = None,
    ) -> int:
        if cluster is None:  # brokers remember it with their data
            state = self.controller.state
            cluster = state.cluster if broker in state.brokers else ""
        asking = join(broker, incarnation, cluster=cluster)
        admission = self.controller.admit(asking, [inventory] if inventory else [])
        self.persist(admission)
        self.controller.admitted(admission)
        self.controller.serves(admission.broker, incarnation)
        return admission.broker

    def create(self, name: str, **options: Any) -> TopicRecord:  # noqa: ANN401
        self.topics_made += 1
        creation = self.controller.topics.create(
            name, f"{self.topics_made:016x}", options=TopicOptions(), **options
        )
        self.persist(creation)
        return creation.topic

    def restarted(self) -> Controller:
        fresh = Controller(99)
        for entry in self.journal:
            fresh.apply(entry)
        return fresh


def status_of(call: Any, *arguments: Any, **options: Any) -> Status:  # noqa: ANN401
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **options)
    return caught.value.status


def test_brokers_without_an_id_get_the_next_ones() -> None:
    register = Register()
    assert [register.join(), register.join(), register.join(7), register.join()] == [1, 2, 7, 8]


def test_a_second_live_broker_of_an_id_is_refused_until_the_first_is_gone() -> None:
    register = Register()
    register.join(3)
    assert status_of(register.join, 3, 2) == Status.DUPLICATE_BROKER
    register.controller.left(3, 1)
    assert register.join(3, 2) == 3


def test_a_broker_that_could_not_store_that_it_joined_joins_again_as_the_same() -> None:
    register = Register()
    assert register.join(3) == 3
    register.create("orders")  # is placed on it, and it has not heard of that
    assert register.join(3, cluster="") == 3, "while the register counts it as live"
    register.controller.left(3, 1)
    assert register.join(3, cluster="") == 3
    assert not register.controller.state.brokers[3].replaced


def test_the_end_of_an_old_connection_does_not_end_the_new_life() -> None:
    register = Register()
    register.join(3, 1)
    register.controller.left(3, 1)
    register.join(3, 2)
    register.controller.left(3, 1)
    assert register.controller.is_live(3)


def test_a_copy_of_an_older_data_directory_is_fenced() -> None:
    register = Register()
    register.join(3, 5)
    register.controller.left(3, 5)
    assert status_of(register.join, 3, 4) == Status.BROKER_FENCED


def test_a_broker_with_a_new_data_directory_may_not_take_an_id_that_has_replicas() -> None:
    register = Register()
    register.join(1)
    register.join(2)
    register.create("orders", partitions=[0])
    leader = register.controller.state.partitions[0].leader
    register.controller.left(leader, 1)
    new = join(leader, 1, cluster="", copy="'")
    assert status_of(register.controller.admit, new, []) == Status.BROKER_FENCED
    register.controller.left(3 - leader, 1)
    empty = join(3 - leader, 1, cluster="", copy="'", credential="")
    assert status_of(register.controller.admit, empty, []) == Status.BROKER_FENCED


def test_a_partition_that_its_sole_replica_lost_is_reported() -> None:
    register = Register()
    register.join(1)
    register.create("orders", partitions=[0])
    register.controller.left(1, 1)
    register.join(1, 2)
    register.controller.left(1, 2)
    copy = join(1, 3, cluster=CLUSTER, copy="'", copied_at=1)
    admission = register.controller.admit(copy, [])
    assert "partition 0 is lost" in admission.conflicts[0]


@pytest.mark.parametrize(
    "life", [RegisterGeneration(2, "second"), RegisterGeneration(1, "another")]
)
def test_a_register_ends_when_a_broker_has_followed_another_one(life: RegisterGeneration) -> None:
    register = Register()
    register.join(1)
    with pytest.raises(SupersededError, match=f"generation {life.generation} "):
        register.controller.admit(join(2, cluster=CLUSTER, register=SEALS.of_life(life)), [])


def test_journal_and_snapshot_keep_the_generations_of_a_register() -> None:
    register = Register()
    register.join(1)
    register.persist(register.controller.start("second"))
    register.persist(register.controller.start("third"))
    for entries in (register.journal, register.controller.state.entries()):
        fresh = Controller(99)
        for entry in entries:
            fresh.apply(entry)
        assert fresh.state.life == RegisterGeneration(3, "third")
        for life in (REGISTER, RegisterGeneration(2, "second"), fresh.state.life, None):
            fresh.admit(join(2, cluster=CLUSTER, register=life), [])
        for life in (RegisterGeneration(2, "third"), RegisterGeneration(4, "fourth")):
            with pytest.raises(SupersededError):
                fresh.admit(join(2, cluster=CLUSTER, register=SEALS.of_life(life)), [])


def test_an_older_register_never_catches_up_by_being_started_again() -> None:
    register, copy = Register(), Register()
    register.persist(register.controller.start("second"))
    seen = register.controller.seals.of_life(register.controller.state.life)
    for start in range(5):
        copy.persist(copy.controller.start(f"of the copy, {start}"))
        with pytest.raises(SupersededError):
            copy.controller.admit(join(2, cluster=CLUSTER, register=seen), [])


def test_a_register_that_took_over_ends_only_by_generations_that_are_not_older() -> None:
    fresh = Controller(4)
    for entry in fresh.form(CLUSTER, "after the loss", 7, secret=SECRET).entries:
        fresh.apply(entry)
    fresh.admit(join(1, cluster=CLUSTER, register=RegisterGeneration(6, "any")), [])
    other = SEALS.of_life(RegisterGeneration(7, "any"))
    with pytest.raises(SupersededError):
        fresh.admit(join(1, cluster=CLUSTER, register=other), [])


def test_a_broker_that_is_refused_for_another_reason_ends_no_register() -> None:
    register = Register()
    register.join(1)
    stranger = RegisterGeneration(9, "of another cluster")
    asking = join(2, cluster="ffff", register=stranger)
    assert status_of(register.controller.admit, asking, []) == Status.WRONG_CLUSTER
    clone = join(1, cluster=CLUSTER, register=stranger, copy="'")
    assert status_of(register.controller.admit, clone, []) == Status.DUPLICATE_BROKER


def test_a_broker_of_another_cluster_is_refused() -> None:
    assert status_of(Register().join, 1, cluster="ffff") == Status.WRONG_CLUSTER


def test_a_restarted_broker_leads_again_in_a_new_epoch() -> None:
    register = Register()
    register.join(1)
    (partition,) = register.create("orders").partitions
    register.controller.left(1, 1)
    assert (
        register.controller.view.topic(register.controller.topics.require("orders"))
        .partitions[0]
        .leader
        is None
    )
    register.join(1, 2)
    record = register.controller.state.partitions[partition]
    assert (record.epoch, record.leader, record.leader_incarnation) == (2, 1, 2)


def test_clients_are_not_sent_to_a_broker_before_it_knows_what_it_serves() -> None:
    register = Register()
    register.join(1)
    (partition,) = register.create("orders").partitions
    register.controller.left(1, 1)
    register.controller.joined(1, 1)
    record = register.controller.state.partitions[partition]
    before = register.controller.view.partition(record)
    assert (before.leader, before.readers) == (None, [])
    register.controller.serves(1, 1)
    assert register.controller.view.partition(record).leader == 1


def test_a_broker_that_reconnects_without_a_restart_leads_on_in_its_epoch() -> None:
    register = Register()
    register.join(1)
    (partition,) = register.create("orders").partitions
    before = register.controller.state.partitions[partition]
    register.controller.left(1, 1)
    register.join(1, 1)
    assert register.controller.state.partitions[partition] == before


def test_leaders_are_spread_evenly_over_live_brokers() -> None:
    register = Register(partitions=6)
    for _ in range(3):
        register.join()
    register.create("wide", partition_count=6)
    assert [one.partitions_led for one in register.controller.view.brokers()] == [2, 2, 2]


def test_an_explicit_assignment_overrides_the_hash_and_survives_a_restart() -> None:
    register = Register()
    register.join()
    hashed = register.create("a").partitions
    other = [one for one in range(4) if one not in hashed][:2]
    assert register.create("b", partitions=other).partitions == other
    remembered = register.restarted().state.topic("b")
    assert remembered is not None
    assert remembered.partitions == other


def test_a_topic_is_not_created_on_partitions_without_a_live_broker() -> None:
    register = Register()
    assert status_of(register.create, "orders") == Status.NO_BROKER
    register.join(1)
    register.create("orders", partitions=[0])
    register.controller.left(1, 1)
    register.join(2)
    assert status_of(register.create, "more", partitions=[0]) == Status.NO_BROKER
    assert register.create("more", partitions=[1]).partitions == [1]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"partition_count": 0}, Status.INVALID_OPTION),
        ({"partition_count": 5}, Status.INVALID_OPTION),
        ({"partitions": []}, Status.INVALID_OPTION),
        ({"partitions": [4]}, Status.INVALID_OPTION),
        ({"partitions": [1, 1]}, Status.INVALID_OPTION),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], status: Status) -> None:
    register = Register()
    register.join()
    assert status_of(register.create, "orders", **options) == status


def test_existing_topics_and_illegal_names_are_refused() -> None:
    register = Register()
    register.join()
    register.create("orders")
    with pytest.raises(TopicExistsError):
        register.create("orders")
    with pytest.raises(InvalidTopicError):
        register.create("../orders")
    with pytest.raises(UnknownTopicError):
        register.controller.topics.delete("clicks")


def test_a_deleted_topic_is_remembered_until_every_broker_has_removed_it() -> None:
    register = Register()
    register.join(1)
    record = register.create("orders")
    register.persist(register.controller.topics.delete("orders"))
    assert list(register.controller.state.removals) == [record.topic_id]
    again = register.create("orders")
    assert again.topic_id != record.topic_id
    inventory = Inventory([], [record])
    register.controller.left(1, 1)
    register.join(1, 2, inventory)
    assert register.controller.topics.require("orders") == again
    register.persist(register.controller.removed(record.topic_id, 1))
    assert not register.controller.state.removals


def test_a_topic_remembers_the_newest_deleted_topics_of_its_name() -> None:
    register = Register()
    register.join(1)
    made = []
    for _ in range(REPLACED_TOPICS_MAX + 2):
        made.append(register.create("orders").topic_id)
        register.persist(register.controller.topics.delete("orders"))
    assert len(register.controller.state.removals) == REPLACED_TOPICS_MAX + 2
    assert register.create("orders").replaces == made[-REPLACED_TOPICS_MAX:]


def test_a_cluster_has_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_decisions, "TOPIC_COUNT_MAX", 3)
    register = Register()
    register.join(1)
    for name in "abc":
        register.create(name)
    assert status_of(register.create, "d") == Status.TOO_MANY
    register.persist(register.controller.topics.delete("a"))
    register.create("d")


def inventory_of(controller: Controller, broker: int) -> Inventory:
    """What a broker that was told everything reports."""
    return Inventory(list(controller.state.partitions.values()), controller.view.topics_of(broker))


def test_a_register_that_lost_its_disk_learns_from_brokers_and_reuses_no_epoch() -> None:
    old = Register()
    old.join(1)
    old.join(2)
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        old.create(name)
    reports = {broker: inventory_of(old.controller, broker) for broker in (1, 2)}
    epochs = {one.partition: one.epoch for one in old.controller.state.partitions.values()}

    new = Register(generation=2)
    new.join(1, 1, reports[1], cluster=CLUSTER)
    assert new.join() == 3, "an id that is only known as a replica's is not given away"
    new.join(2, 2, reports[2], cluster=CLUSTER)
    for name in names:
        assert new.controller.topics.require(name) == old.controller.topics.require(name)
    for record in new.controller.state.partitions.values():
        expected = epochs[record.partition] + (1 if record.leader == 2 else 0)
        assert record.epoch == expected


def test_a_topic_is_not_made_again_where_its_lost_record_may_come_back() -> None:
    old = Register()
    old.join(1)
    old.join(2)
    lost = old.create("lost", partitions=[0])
    old.create("kept", partitions=[1])
    owner = old.controller.state.partitions[0].leader
    other = 3 - owner

    new = Register(generation=2)
    new.join(other, 1, inventory_of(old.controller, other), cluster=CLUSTER)
    assert status_of(new.create, "lost", partitions=[0]) == Status.NOT_READY
    new.join(owner, 1, inventory_of(old.controller, owner), cluster=CLUSTER)
    assert new.controller.topics.require("lost") == lost


def test_an_inventory_with_an_older_decision_changes_nothing() -> None:
    register = Register()
    register.join(1)
    register.create("orders", partitions=[0])
    stale = register.controller.state.partitions[0]
    register.controller.left(1, 1)
    register.join(1, 2)
    register.controller.left(1, 2)
    register.join(1, 2, Inventory([stale], []))
    assert register.controller.state.partitions[0].epoch == 2


def test_two_creations_of_a_topic_are_reported_as_a_conflict_and_neither_is_lost() -> None:
    register = Register()
    register.join(1)
    register.create("orders", partitions=[0])
    stranger = TopicRecord("orders", "f" * 16, [0], TopicOptions())
    admission = register.controller.admit(join(2, cluster=""), [Inventory([], [stranger])])
    assert "f" * 16 in admission.conflicts[0]
    register.persist(admission)
    assert register.controller.topics.require("orders").topic_id != "f" * 16


def test_a_broker_that_is_gone_and_holds_nothing_is_forgotten_for_good() -> None:
    register = Register()
    for broker in (1, 2, 3):
        register.join(broker)
    register.create("orders", partitions=[0])
    assert register.controller.state.partitions[0].replicas == [1]
    assert status_of(register.controller.remove, 4) == Status.INVALID_OPTION
    assert status_of(register.controller.remove, 3) == Status.BROKER_IN_USE
    for broker in (1, 3):
        register.controller.left(broker, 1)
    assert status_of(register.controller.remove, 1) == Status.BROKER_IN_USE
    register.persist(register.controller.remove(3))
    assert register.controller.remove(3).entries == [], "it was asked again"
    for entries in (register.journal, register.controller.state.entries()):
        fresh = Register()
        fresh.controller = Controller(99)
        fresh.record(entries)
        assert sorted(fresh.controller.state.brokers) == [1, 2]
        assert status_of(fresh.join, 3, 2, cluster=CLUSTER) == Status.BROKER_FENCED
        assert fresh.join() == 4


def test_nobody_waits_for_a_forgotten_broker_to_remove_a_topic() -> None:
    register = Register()
    register.join(1)
    register.join(2)
    register.create("orders", partitions=[0])
    register.controller.left(1, 1)
    register.persist(register.controller.topics.delete("orders"))
    moved = attrs.evolve(register.controller.state.partitions[0], version=1, replicas=[2])
    register.record([PartitionDecided(moved)])
    assert register.controller.state.removals
    register.persist(register.controller.remove(1))
    assert not register.controller.state.removals


def test_clients_are_sent_to_replicas_in_turn() -> None:
    register = Register()
    register.join(1)
    register.join(2)
    register.create("orders", partitions=[0])
    shared = attrs.evolve(register.controller.state.partitions[0], replicas=[1, 2], in_sync=[1, 2])
    firsts = {register.controller.view.partition(shared).readers[0] for _ in range(4)}
    assert firsts == {"ws://broker-1", "ws://broker-2"}


class LikeAModel(RuleBasedStateMachine):
    """Joins, losses, topics and restarts in any order; the journal remembers all of it."""

    @initialize()
    def begin(self) -> None:
        self.register = Register(partitions=5)
        self.lives = {1: 0, 2: 0, 3: 0}
        self.live: set[int] = set()
        self.topics: dict[str, TopicRecord] = {}
        self.epochs: dict[int, int] = {}

    @rule(broker=st.sampled_from([1, 2, 3]))
    def start(self, broker: int) -> None:
        if broker not in self.live:
            self.lives[broker] += 1
            self.register.join(broker, self.lives[broker])
            self.live.add(broker)

    @rule(broker=st.sampled_from([1, 2, 3]))
    def lose(self, broker: int) -> None:
        self.register.controller.left(broker, self.lives[broker])
        self.live.discard(broker)

    @rule(name=st.sampled_from("abcdef"), count=st.integers(1, 3))
    def create(self, name: str, count: int) -> None:
        if name in self.topics:
            with pytest.raises(TopicExistsError):
                self.register.create(name)
            return
        with contextlib.suppress(RefusedError):  # a broker it needs is away
            self.topics[name] = self.register.create(name, partition_count=count)

    @rule(name=st.sampled_from("abcdef"))
    def delete(self, name: str) -> None:
        if name in self.topics:
            self.register.persist(self.register.controller.topics.delete(name))
            del self.topics[name]

    @rule()
    def restart_the_register(self) -> None:
        self.register.controller = self.register.restarted()
        self.live.clear()

    @rule()
    def restart_from_a_snapshot(self) -> None:
        self.register.journal = self.register.controller.state.entries()
        self.restart_the_register()

    @invariant()
    def answers_exactly_what_happened(self) -> None:
        controller = self.register.controller
        controller.check_invariants()
        assert {one.topic for one in controller.state.topics_after("", 100)} == set(self.topics)
        for name, record in self.topics.items():
            assert controller.topics.require(name) == record
        assert {one.broker for one in controller.view.brokers() if one.live} == self.live
        for decided in controller.state.partitions.values():
            assert decided.epoch >= self.epochs.get(decided.partition, 0)
            self.epochs[decided.partition] = decided.epoch
            described = controller.view.partition(decided)
            assert (described.leader is not None) == (decided.leader in self.live)


TestLikeAModel = LikeAModel.TestCase


@pytest.mark.parametrize("generation", [1, 7])
def test_a_register_that_died_while_it_formed_its_cluster_forms_it_again(generation: int) -> None:
    # A write of several entries may leave any number of them on the device.
    torn = Controller(4).form(CLUSTER, "first", 3).entries[:1]
    again = Controller(4)
    for entry in torn:
        again.apply(entry)
    is_formed = bool(again.state.cluster)
    assert not is_formed, "it has to listen to brokers again, not start with half of it"
    for entry in again.form("another", "second", generation).entries:
        again.apply(entry)
    assert again.state.cluster == "another"
    assert again.state.life == RegisterGeneration(generation, "second")
    again.check_invariants()
