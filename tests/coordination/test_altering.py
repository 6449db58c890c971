"""A register alters topics, and knows the newest options again when it has lost its journal."""

from __future__ import annotations

import attrs
import pytest

from octopi.coordination.admission import Admission
from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import Entry, TopicAltered
from octopi.errors import RefusedError, Status, UnknownTopicError
from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import TOLD_MAX
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
WEEK_MS = 7 * 24 * 3600 * 1000
OPTIONS = TopicOptions(retention_ms=60_000, segment_bytes=4096)
FORMER = RegisterGeneration(4, "former")
"""The generation that the brokers had joined last when the journal was lost."""


class Register(JournaledController):
    """A register with brokers 1 to 3, and topic "orders" in partition 0, on all of them."""

    def __init__(self) -> None:
        super().__init__(Controller(4, 3))
        self.persist(self.controller.form(CLUSTER, REGISTER.nonce, 1, secret=SECRET))
        for broker in (1, 2, 3):
            self.admit(join(broker, cluster=""), Inventory([], []))
        creation = self.controller.topics.create(
            "orders", "1" * 16, partitions=[0], options=OPTIONS
        )
        self.persist(creation)

    def admit(self, asking: Join, *inventory: Inventory) -> Admission:
        admission = self.controller.admit(asking, list(inventory))
        self.persist(admission)
        self.controller.admitted(admission)
        self.controller.check_invariants()
        return admission

    def alter(self, **changes: int | None) -> list[Entry]:
        values = attrs.evolve(TopicOptions(), **changes)
        alteration = self.controller.topics.alter("orders", values, [*changes])
        self.persist(alteration)
        assert alteration.topic == self.topic
        return alteration.entries

    @property
    def topic(self) -> TopicRecord:
        topic = self.controller.state.topic("orders")
        assert topic is not None
        return topic


def test_an_alteration_changes_the_options_that_it_names_and_no_others() -> None:
    register = Register()
    (entry,) = register.alter(retention_ms=WEEK_MS, min_insync=2)
    assert register.topic.options == attrs.evolve(OPTIONS, retention_ms=WEEK_MS, min_insync=2)
    assert entry == TopicAltered(register.topic)
    register.alter(retention_ms=None)
    assert register.topic.options == attrs.evolve(OPTIONS, retention_ms=None, min_insync=2)
    assert register.topic.alteration == (1, 2)


def test_an_alteration_that_changes_nothing_is_not_journaled() -> None:
    register = Register()
    register.alter(retention_ms=WEEK_MS)
    assert register.alter(retention_ms=WEEK_MS) == []
    assert register.alter() == []
    assert register.topic.alteration == (1, 1)


def test_what_no_topic_can_have_is_refused() -> None:
    register = Register()
    with pytest.raises(UnknownTopicError):
        register.controller.topics.alter("others", OPTIONS, ["retention_ms"])
    for changes in ({"min_insync": 4}, {"min_insync": 0}, {"retention_ms": None, "hold_ms": 1}):
        with pytest.raises(RefusedError) as refusal:
            register.alter(**changes)
        assert refusal.value.status == Status.INVALID_OPTION
    register.alter(min_insync=3)


def test_a_min_insync_that_is_too_great_already_doesn_t_refuse_other_changes() -> None:
    register = Register()
    creation = register.controller.topics.create(
        "many", "2" * 16, partitions=[1], options=TopicOptions(min_insync=5)
    )
    register.persist(creation)
    for min_insync in (5, 4):
        options = TopicOptions(min_insync=min_insync, retention_ms=WEEK_MS)
        register.persist(
            register.controller.topics.alter("many", options, ["min_insync", "retention_ms"])
        )
    many = register.controller.state.topic("many")
    assert many is not None
    assert many.options == options


def test_a_restarted_register_goes_by_the_altered_options() -> None:
    register = Register()
    register.alter(retention_ms=WEEK_MS)
    for journal in (register.journal, register.controller.state.entries()):
        again = JournaledController(Controller(4, 3))
        again.record(journal)
        assert again.controller.state.topic("orders") == register.topic
        again.persist(again.controller.start("second"))
        options = TopicOptions(min_insync=2)
        altered = again.controller.topics.alter("orders", options, ["min_insync"]).topic
        assert altered.alteration == (2, 2)


# --- what brokers report -----------------------------------------------------------------

PARTITION = PartitionRecord(0, 3, 0, 1, 1, [1, 2, 3], [1, 2, 3])
OLDER = TopicRecord("orders", "1" * 16, [0], OPTIONS)
NEWER = attrs.evolve(OLDER, options=TopicOptions(min_insync=2), generation=3, version=1)
NEWEST = attrs.evolve(OLDER, options=TopicOptions(min_insync=1), generation=4, version=2)


def without_journal(*reports: TopicRecord) -> TopicRecord | None:
    """The topic that a register without a journal knows after brokers 1, 2 and so on have come in
    this order and reported these."""
    register = JournaledController(Controller(4, 3))
    register.persist(register.controller.form(CLUSTER, "second", 5, secret="5ec0" * 8))
    for broker, topic in enumerate(reports, start=1):
        inventory = Inventory([PARTITION], [topic], [ReplicaReport(0, 3, True)])
        asking = join(broker, cluster=CLUSTER, register=FORMER)
        admission = register.controller.admit(asking, [inventory])
        register.persist(admission)
        register.controller.admitted(admission)
    return register.controller.state.topic("orders")


@pytest.mark.parametrize(
    "reports",
    [
        (OLDER, NEWER, NEWEST),
        (NEWEST, NEWER, OLDER),
        (NEWER, OLDER, NEWEST),
        (OLDER, NEWEST, NEWEST, OLDER),
        (OLDER, OLDER, OLDER, NEWEST),
    ],
)
def test_the_newest_reported_options_count_whoever_reports_them_first(
    reports: tuple[TopicRecord, ...],
) -> None:
    assert without_journal(*reports) == NEWEST


def test_what_a_register_without_a_journal_has_altered_itself_is_newer() -> None:
    register = JournaledController(Controller(4, 3))
    register.persist(register.controller.form(CLUSTER, "second", 5, secret=SECRET))
    altered = None
    for broker, topic in ((1, OLDER), (2, OLDER), (3, OLDER), (4, NEWEST)):
        if broker == 4:
            alteration = register.controller.topics.alter(
                "orders", TopicOptions(retention_ms=WEEK_MS), ["retention_ms"]
            )
            register.persist(alteration)
            altered = alteration.topic
            assert altered.alteration == (5, 1)
        inventory = Inventory([PARTITION], [topic], [ReplicaReport(0, 3, True)])
        asking = join(broker, cluster=CLUSTER, register=FORMER)
        admission = register.controller.admit(asking, [inventory])
        register.persist(admission)
        register.controller.admitted(admission)
    assert register.controller.state.topic("orders") == altered


def test_a_register_with_its_journal_doesn_t_believe_options_that_it_never_decided() -> None:
    register = Register()
    claimed = attrs.evolve(register.topic, options=TopicOptions(), generation=1, version=7)
    register.controller.left(BrokerId(1), Incarnation(1))
    admission = register.admit(join(1, 2, cluster=CLUSTER), Inventory([], [claimed]))
    assert register.topic.options == OPTIONS
    assert "never decided" in admission.conflicts[0]


def test_a_register_with_an_older_copy_of_its_journal_believes_what_it_has_sealed() -> None:
    register = Register()
    copy = list(register.journal)
    register.alter(retention_ms=WEEK_MS)
    sealed = SEALS.of_topic(register.topic)
    older = Register()
    older.controller, older.journal = Controller(4, 3), []
    older.record(copy)
    admission = older.admit(join(1, 2, cluster=CLUSTER), Inventory([], [sealed, sealed]))
    assert older.topic == register.topic
    assert admission.proofs == ["options of topic orders, altered in generation 1"] * 2


def test_a_seal_is_of_the_options_too() -> None:
    register = Register()
    sealed = SEALS.of_topic(register.topic)
    assert SEALS.knows_topic(sealed)
    for changes in ({"options": TopicOptions()}, {"generation": 9}, {"version": 9}):
        assert not SEALS.knows_topic(attrs.evolve(sealed, **changes))


def test_a_number_of_an_alteration_that_no_register_reaches_is_refused() -> None:
    register = Register()
    odd = attrs.evolve(register.topic, version=TOLD_MAX + 1)
    register.controller.left(BrokerId(1), Incarnation(1))
    with pytest.raises(RefusedError) as refusal:
        register.admit(join(1, 2, cluster=CLUSTER), Inventory([], [odd]))
    assert refusal.value.status == Status.MALFORMED_MESSAGE
