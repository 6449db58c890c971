"""A register whose journal is whole knows better than any broker that joins."""

from __future__ import annotations

import attrs
import pytest

from octopi.coordination.admission import Admission
from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import (
    BrokerRegistered,
    Entry,
    PartitionDecided,
    RegisterStarted,
)
from octopi.errors import RefusedError, Status, SupersededError
from octopi.limits import BROKER_ID_MAX, BROKERS_MAX, TOLD_MAX
from octopi.roles.register.startup_recovery import former_cluster
from octopi.wire.messages import (
    Inventory,
    Join,
    PartitionRecord,
    RegisterGeneration,
    ReplicaReport,
    TopicOptions,
    TopicRecord,
)
from tests.coordination.joins import REGISTER, SEALS, SECRET, join
from tests.coordination.journaled import JournaledController

CLUSTER = "00c1a5735eed0001"
LIE = PartitionRecord(0, 1 << 30, 0, 7, 1, [7], [7])


class Register(JournaledController):
    """A register with brokers 1 to 3, and topic "orders" in partition 0, on all of them."""

    def __init__(self, generation: int = 1) -> None:
        super().__init__(Controller(4, 3))
        self.persist(self.controller.form(CLUSTER, REGISTER.nonce, generation, secret=SECRET))
        for broker in (1, 2, 3):
            self.admit(join(broker, cluster=""))
            self.controller.serves(broker, 1)
        creation = self.controller.topics.create(
            "orders", "1" * 16, partitions=[0], options=TopicOptions()
        )
        self.topic = creation.topic
        self.persist(creation)

    def admit(self, asking: Join, *inventory: Inventory) -> Admission:
        admission = self.controller.admit(asking, list(inventory))
        self.persist(admission)
        self.controller.admitted(admission)
        self.controller.check_invariants()
        return admission

    def restarted(self, journal: list[Entry] | None = None) -> Register:
        fresh = Register.__new__(Register)
        fresh.controller, fresh.journal, fresh.topic = Controller(99, 3), [], self.topic
        fresh.record(list(self.journal if journal is None else journal))
        fresh.persist(fresh.controller.start("again"))
        return fresh

    @property
    def known(self) -> PartitionRecord:
        return self.controller.state.partitions[0]

    @property
    def life(self) -> RegisterGeneration:
        return self.controller.state.life


def test_a_decision_that_a_register_never_took_is_not_believed() -> None:
    register = Register()
    before = register.known
    liar = join(7, cluster=CLUSTER, credential="")
    admission = register.admit(liar, Inventory([LIE], [], [ReplicaReport(0, 1 << 30, True)]))
    assert register.known == before
    assert "never took: partition 0 in epoch 1073741824" in admission.conflicts[0]
    assert "promised epoch 1073741824 of partition 0" in admission.conflicts[1]
    assert register.controller.elections.announcement(0) is None
    assert not admission.proofs


def test_a_decision_with_the_seal_of_another_one_is_not_believed() -> None:
    register = Register()
    before = register.known
    seal = SEALS.of_partition(before).seal
    register.admit(
        join(7, cluster=CLUSTER, credential=""), Inventory([attrs.evolve(LIE, seal=seal)], [])
    )
    assert register.known == before


def test_a_partition_that_a_register_never_made_is_not_believed() -> None:
    register = Register()
    topic = TopicRecord("theirs", "2" * 16, [3], TopicOptions())
    lie = attrs.evolve(LIE, partition=3, epoch=1)
    register.admit(join(7, cluster=CLUSTER, credential=""), Inventory([lie], [topic]))
    assert register.controller.state.partitions.keys() == {0}
    assert register.controller.state.topic("theirs") is None


def test_a_topic_that_a_register_never_made_is_kept_where_it_is_and_not_served() -> None:
    register = Register()
    topic = TopicRecord("theirs", "2" * 16, [0], TopicOptions())
    admission = register.admit(join(7, cluster=CLUSTER, credential=""), Inventory([], [topic]))
    assert register.controller.state.topic("theirs") is None
    assert "kept, but not served" in admission.conflicts[0]


def test_a_bounded_number_of_refused_reports_is_named() -> None:
    topics = [TopicRecord(f"t{one}", f"{one:016x}", [0], TopicOptions()) for one in range(90)]
    admission = Register().admit(join(7, cluster=CLUSTER, credential=""), Inventory([], topics))
    assert len(admission.conflicts) == 21
    assert admission.conflicts[-1] == "and 70 more of that kind"


def test_a_register_with_an_older_copy_of_its_disk_believes_its_own_seal() -> None:
    register = Register()
    older = list(register.journal)
    newer = attrs.evolve(register.known, version=1, in_sync=[2, 3], lost=[1])
    register.record([PartitionDecided(newer)])
    creation = register.controller.topics.create(
        "late", "3" * 16, partitions=[0], options=TopicOptions()
    )
    register.persist(creation)
    topic = creation.topic
    behind = register.restarted(older)
    told = Inventory(
        [SEALS.of_partition(newer)], [SEALS.of_topic(topic)], [ReplicaReport(0, 9, True)]
    )
    first = behind.admit(join(2, cluster=CLUSTER), told)
    assert first.proofs == ["partition 0 in epoch 1, version 1", "topic late"]
    assert behind.controller.elections.leaderless() == [], "nothing is decided before 3 reports"
    assert behind.known.version == 0
    assert behind.controller.learning() == ([0], [3])
    behind.admit(join(3, cluster=CLUSTER), told)
    assert behind.known == newer
    assert behind.controller.learning() == ([], [])
    assert behind.known.seal == ""
    assert behind.controller.state.topic("late") == topic
    announced = behind.controller.elections.announcement(0)
    assert announced is not None
    assert announced.epoch == 10, "9 was promised"


def test_a_register_that_began_empty_believes_reports_about_unknown_partitions_only() -> None:
    register = Register(generation=5)
    before = register.known
    other = PartitionRecord(2, 8, 0, 3, 1, [3], [3])
    topics = [
        TopicRecord("known", "4" * 16, [0], TopicOptions()),
        TopicRecord("unknown", "5" * 16, [2], TopicOptions()),
    ]
    register.controller.left(3, 1)
    told = Inventory([LIE, other], topics, [ReplicaReport(2, 8, True)])
    admission = register.admit(join(3, 2, cluster=CLUSTER), told)
    assert register.known == before
    assert register.controller.state.partitions[2].replicas == [3]
    assert register.controller.state.topic("known") is None
    assert register.controller.state.topic("unknown") == topics[1]
    assert len(admission.conflicts) == 2


def test_of_two_topics_with_one_id_only_the_first_is_taken() -> None:
    register = Register(generation=5)
    other = PartitionRecord(2, 8, 0, 3, 1, [3], [3])
    topics = [TopicRecord(name, "1" * 16, [2], TopicOptions()) for name in ("a", "b")]
    register.controller.left(3, 1)
    admission = register.admit(join(3, 2, cluster=CLUSTER), Inventory([other], topics))
    assert "of another topic" in admission.conflicts[0]
    assert register.controller.state.topic_count == 1


def test_a_promised_epoch_counts_if_its_replica_has_proved_which_broker_it_is() -> None:
    register = Register()
    register.controller.left(2, 1)
    register.admit(join(2, 2, cluster=CLUSTER), Inventory([], [], [ReplicaReport(0, 6, True)]))
    announced = register.controller.elections.announcement(0)
    assert announced is not None
    assert announced.epoch == 7


@pytest.mark.parametrize("generation", [1, 9, 1 << 39])
def test_an_unproved_claim_to_have_followed_another_register_ends_no_register(
    generation: int,
) -> None:
    register = Register()
    for _ in range(3):
        for broker in (None, 7, 8):
            asking = join(
                broker, cluster=CLUSTER, register=RegisterGeneration(generation, "x"), credential=""
            )
            with pytest.raises(RefusedError, match="nothing proves that") as caught:
                register.controller.admit(asking, [])
            assert caught.value.status == Status.REGISTER_SUPERSEDED
            assert caught.value.retryable
            assert not isinstance(caught.value, SupersededError)
        register = register.restarted()


def test_a_newer_generation_sealed_by_a_register_ends_that_register() -> None:
    register = Register()
    copy = register.restarted()
    register.record([RegisterStarted(RegisterGeneration(2, "the original"))])
    life = SEALS.of_life(register.life)
    with pytest.raises(SupersededError, match="generation 2 "):
        copy.controller.admit(join(7, cluster=CLUSTER, register=life, credential=""), [])


def test_a_register_ends_if_all_electable_brokers_follow_another_one() -> None:
    register = Register()
    other = RegisterGeneration(6, "by mistake")
    for broker in (1, 2, 3):
        register.controller.left(broker, 1)
    for broker in (1, 2):
        with pytest.raises(RefusedError, match="nothing proves that"):
            register.controller.admit(join(broker, 2, cluster=CLUSTER, register=other), [])
    with pytest.raises(SupersededError):
        register.controller.admit(join(3, 2, cluster=CLUSTER, register=other), [])


def test_a_register_goes_on_while_one_electable_broker_follows_it() -> None:
    register = Register()
    other = RegisterGeneration(6, "by mistake")
    for broker in (1, 2, 3):
        register.controller.left(broker, 1)
    for broker in (1, 2):
        with pytest.raises(RefusedError, match="nothing proves that"):
            register.controller.admit(join(broker, 2, cluster=CLUSTER, register=other), [])
    register.admit(join(3, 2, cluster=CLUSTER))
    register.admit(join(1, 2, cluster=CLUSTER))
    with pytest.raises(RefusedError, match="nothing proves that"):
        register.controller.admit(join(2, 2, cluster=CLUSTER, register=other), [])


@pytest.mark.parametrize("incarnation", [1, 2, 1 << 39])
@pytest.mark.parametrize("cluster", ["", CLUSTER])
def test_the_id_of_a_broker_that_is_away_is_not_given_to_another_one(
    incarnation: int, cluster: str
) -> None:
    register = Register()
    register.controller.left(2, 1)
    thief = attrs.evolve(
        join(2, 1, cluster=cluster, credential=""),
        incarnation=incarnation,
        nonce="theirs",
        ancestors=["a", "b"],
    )
    with pytest.raises(RefusedError, match="belongs to another data directory") as caught:
        register.controller.admit(thief, [])
    assert caught.value.status == Status.BROKER_FENCED
    register.admit(join(2, 2, cluster=CLUSTER, credential=""))
    assert register.known.in_sync == [1, 2, 3]


def test_new_brokers_get_unused_ids_if_the_greatest_is_taken() -> None:
    register = Register()
    register.admit(join(BROKER_ID_MAX, cluster="", credential=""))
    assert [
        register.admit(attrs.evolve(join(None, cluster=""), nonce=one)).broker for one in "ab"
    ] == [4, 5]


def test_a_register_knows_a_bounded_number_of_brokers() -> None:
    register = Register()
    register.record(
        [BrokerRegistered(one, 1, "n", "ws://a:1") for one in range(4, BROKERS_MAX + 1)]
    )
    with pytest.raises(RefusedError) as caught:
        register.controller.admit(join(None, cluster=""), [])
    assert caught.value.status == Status.TOO_MANY
    register.controller.left(2, 1)
    register.admit(join(2, 2, cluster=CLUSTER))


@pytest.mark.parametrize(
    "page",
    [
        Inventory([attrs.evolve(LIE, epoch=TOLD_MAX + 1)], []),
        Inventory([attrs.evolve(LIE, version=TOLD_MAX + 1)], []),
        Inventory([], [], [ReplicaReport(0, TOLD_MAX + 1, True)]),
    ],
    ids=["epoch", "version", "promise"],
)
def test_a_report_of_an_epoch_or_version_near_the_greatest_number_is_refused(
    page: Inventory,
) -> None:
    empty = Controller(4, 3)
    for entry in empty.form(CLUSTER, "first", secret=SECRET).entries:
        empty.apply(entry)
    with pytest.raises(RefusedError) as caught:
        empty.admit(join(7, cluster=CLUSTER, credential=""), [page])
    assert caught.value.status == Status.MALFORMED_MESSAGE


def test_a_register_does_not_count_on_from_a_generation_near_the_greatest_number() -> None:
    last = join(7, cluster=CLUSTER, register=RegisterGeneration(TOLD_MAX, "last"))
    beyond = join(8, cluster=CLUSTER, register=RegisterGeneration(TOLD_MAX + 1, "beyond"))
    assert former_cluster([last, beyond]).generation == TOLD_MAX


def test_a_seal_is_valid_for_one_kind_of_statement_of_one_cluster() -> None:
    record = SEALS.of_partition(LIE)
    assert SEALS.knows_partition(record)
    assert not SEALS.knows_partition(attrs.evolve(record, in_sync=[]))
    topic = SEALS.of_topic(TopicRecord("a", "1" * 16, [0], TopicOptions()))
    assert SEALS.knows_topic(topic)
    assert not SEALS.knows_topic(attrs.evolve(topic, options=TopicOptions(min_insync=2)))
    life = SEALS.of_life(RegisterGeneration(3, "n"))
    assert SEALS.knows_life(life)
    assert not SEALS.knows_life(attrs.evolve(life, generation=4))
    assert SEALS.knows_broker(3, SEALS.credential(3))
    assert not SEALS.knows_broker(4, SEALS.credential(3))
    other = type(SEALS)("0" * 32)
    assert not other.knows_partition(record)
    nothing = type(SEALS)("")
    assert nothing.of_partition(LIE).seal == ""
    assert not nothing.knows_partition(LIE)
    assert not SEALS.knows_broker(3, "é")


def test_a_journal_without_a_secret_gets_one_at_the_next_start() -> None:
    controller = Controller(4)
    for entry in controller.form(CLUSTER, "first").entries:
        controller.apply(entry)
    for entry in controller.start("second", secret=SECRET).entries:
        controller.apply(entry)
    assert controller.state.secret == SECRET
    assert len(controller.start("third").entries) == 1
    fresh = Controller(4)
    for entry in controller.state.entries():
        fresh.apply(entry)
    assert fresh.state.secret == SECRET
