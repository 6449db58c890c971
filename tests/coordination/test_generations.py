"""Topics grow and move: which generations a register decides, and in which order."""

from __future__ import annotations

import attrs
import pytest

from octopi.coordination.admission import Admission
from octopi.coordination.controller import Controller
from octopi.coordination.generation_decisions import GenerationDecisions
from octopi.coordination.generations import (
    Advance,
    GenerationChange,
    MakeLogs,
    OrderSeal,
    SealedLog,
    in_force,
    proposed,
    under_way,
)
from octopi.coordination.journal_entries import PartitionDecided
from octopi.errors import NotReadyError, RefusedError, Status, UnknownTopicError
from octopi.generation_record import Generation, GenerationState, generations_fault
from octopi.identifiers import Epoch, Offset, PartitionId, TopicId
from octopi.limits import GENERATED_PARTITIONS_MAX, GENERATIONS_MAX, GROW_TIMEOUT_S, SEAL_RETRY_S
from octopi.model import PartitionRecord, StreamDefinition, TopicOptions, TopicRecord
from octopi.wire.messages import Inventory, RegisterGeneration
from tests.coordination.growth_world import VARIANTS, ViolationError, run
from tests.coordination.joins import REGISTER, SEALS, SECRET, join
from tests.coordination.journaled import JournaledController

ORDERS = TopicId("1" * 16)
ZERO, ONE, TWO = (PartitionId(one) for one in range(3))


class Register(JournaledController):
    """A register with brokers 1 to 3 and eight partitions; topic "orders" is in *partitions*."""

    def __init__(self, *partitions: PartitionId, stream: StreamDefinition | None = None) -> None:
        super().__init__(Controller(8, 3))
        self.persist(self.controller.form("00c1a5735eed0001", REGISTER.nonce, 1, secret=SECRET))
        for broker in (1, 2, 3):
            admission = self.controller.admit(join(broker, cluster=""), [Inventory([], [])])
            assert isinstance(admission, Admission)
            self.persist(admission)
            self.controller.admitted(admission)
        self.persist(
            self.controller.topics.create(
                "orders",
                ORDERS,
                partitions=list(partitions),
                options=TopicOptions(),
                stream=stream,
            )
        )
        self.decisions = GenerationDecisions(self.controller.state, self.controller.topics)

    @property
    def topic(self) -> TopicRecord:
        topic = self.controller.state.topic("orders")
        assert topic is not None
        return topic

    @property
    def partitions(self) -> dict[PartitionId, PartitionRecord]:
        return self.controller.state.partitions

    def advance(self, state: GenerationState, *ends: int) -> None:
        number = self.topic.generations[-1].number
        logs = in_force(self.topic).partitions
        sealed = {
            one: SealedLog(Epoch(self.partitions[one].epoch), Offset(end))
            for one, end in zip(logs, ends, strict=False)
        }
        self.persist(self.decisions.advance(ORDERS, number, state, sealed))
        assert not self.topic.fault()

    def grow(self, count: int, *ends: int) -> None:
        """Have the topic grow, with logs that end at *ends*."""
        self.persist(self.decisions.grow("orders", count))
        self.advance(GenerationState.SEALING)
        self.advance(GenerationState.IN_FORCE, *ends)


def refusal(asked: object) -> Status:
    """The status with which *asked*, a call, is refused."""
    with pytest.raises(RefusedError) as refused:
        asked()  # type: ignore[operator]
    return refused.value.status


# --- the record of a topic -------------------------------------------------------------------


def test_a_topic_grows_by_a_generation_that_is_in_force_when_all_logs_are_sealed() -> None:
    register = Register(ZERO, ONE)
    register.persist(register.decisions.grow("orders", 4))
    assert register.topic.partitions == [ZERO, ONE], "nobody is sent elsewhere yet"
    new = register.topic.generations[-1]
    assert new.partitions[:2] == [ZERO, ONE], "keys of the first places stay"
    assert len(new.partitions) == 4
    assert set(register.topic.log_partitions) == {*new.partitions}
    assert all(one in register.partitions for one in new.partitions), "brokers are to hold them"
    register.advance(GenerationState.SEALING)
    assert register.topic.partitions == [ZERO, ONE]
    register.advance(GenerationState.IN_FORCE, 70, 90)
    assert register.topic.partitions == new.partitions
    assert register.topic.generations == [
        Generation(1, [ZERO, ONE], GenerationState.IN_FORCE, [70, 90]),
        Generation(2, new.partitions, GenerationState.IN_FORCE),
    ]
    assert under_way(register.topic) is None


def test_each_state_is_a_later_alteration_of_the_topic() -> None:
    register = Register(ZERO)
    before = register.topic.alteration
    register.grow(2, 10)
    assert before < register.topic.alteration == (1, 3)


def test_a_snapshot_of_the_journal_has_the_generations() -> None:
    register = Register(ZERO)
    register.grow(2, 10)
    register.persist(register.decisions.grow("orders", 4))
    again = JournaledController(Controller(8, 3))
    again.record(register.controller.state.entries())
    assert again.controller.state.topic("orders") == register.topic


def test_a_generation_that_is_cancelled_is_never_in_force_and_its_number_is_spent() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.grow("orders", 2))
    spent = register.topic.generations[-1]
    register.advance(GenerationState.CANCELLED)
    assert register.topic.partitions == [ZERO]
    assert spent.partitions[1] in register.topic.log_partitions, "an empty log is left there"
    register.grow(2, 30)
    assert [(one.number, one.state) for one in register.topic.generations] == [
        (1, "in_force"),
        (2, "cancelled"),
        (3, "in_force"),
    ]
    assert register.topic.generations[0].sealed == [30]


def test_a_topic_of_one_partition_moves_and_its_old_log_stays() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.move("orders", TWO))
    register.advance(GenerationState.SEALING)
    register.advance(GenerationState.IN_FORCE, 55)
    assert register.topic.partitions == [TWO]
    assert register.topic.log_partitions == [TWO, ZERO]
    back = refusal(lambda: register.decisions.move("orders", ZERO))
    assert back is Status.INVALID_OPTION, "offsets of a log are never used twice"


def test_a_topic_that_moved_grows_around_its_sealed_log() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.move("orders", TWO))
    register.advance(GenerationState.SEALING)
    register.advance(GenerationState.IN_FORCE, 55)
    register.grow(7, 60)
    assert ZERO not in register.topic.partitions
    assert refusal(lambda: register.decisions.grow("orders", 8)) is Status.INVALID_OPTION


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 9, 1_001])
def test_a_topic_grows_to_more_partitions_than_it_has_and_no_more_than_there_are(
    count: int,
) -> None:
    register = Register(ZERO, ONE)
    assert refusal(lambda: register.decisions.grow("orders", count)) is Status.INVALID_OPTION


def test_what_can_not_grow_or_move_is_refused() -> None:
    register = Register(ZERO, ONE)
    decisions, topics = register.decisions, register.controller.topics
    assert refusal(lambda: decisions.move("orders", TWO)) is Status.INVALID_OPTION
    assert refusal(lambda: decisions.move("orders", PartitionId(8))) is Status.UNKNOWN_PARTITION
    register.persist(topics.create("prices", "2" * 16, options=TopicOptions(), kind="relay"))
    assert refusal(lambda: decisions.grow("prices", 2)) is Status.WRONG_KIND
    assert refusal(lambda: decisions.move("prices", TWO)) is Status.WRONG_KIND
    with pytest.raises(UnknownTopicError):
        decisions.grow("nothing", 2)
    streamed = Register(ZERO, stream=StreamDefinition("text/plain"))
    assert refusal(lambda: streamed.decisions.grow("orders", 2)) is Status.INVALID_OPTION
    assert refusal(lambda: streamed.decisions.move("orders", ONE)) is Status.INVALID_OPTION


def test_a_topic_gets_one_generation_at_a_time() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.grow("orders", 2))
    assert refusal(lambda: register.decisions.grow("orders", 4)) is Status.NOT_READY
    register.advance(GenerationState.SEALING)
    assert refusal(lambda: register.decisions.move("orders", TWO)) is Status.NOT_READY


def test_the_number_of_generations_and_of_their_partitions_is_bounded() -> None:
    many = [Generation(one + 1, [PartitionId(one)], "cancelled") for one in range(GENERATIONS_MAX)]
    many[0] = attrs.evolve(many[0], state="in_force")
    topic = TopicRecord("orders", ORDERS, [ZERO], TopicOptions(), generations=many)
    assert refusal(lambda: proposed(topic, [ONE])) is Status.TOO_MANY
    wide = [PartitionId(one) for one in range(GENERATED_PARTITIONS_MAX)]
    topic = TopicRecord("orders", ORDERS, [ZERO], TopicOptions())
    assert refusal(lambda: proposed(topic, wide)) is Status.TOO_MANY
    assert proposed(topic, wide[:-1]).generations[-1].partitions == wide[:-1]


def test_options_are_altered_while_a_topic_grows() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.grow("orders", 2))
    options = TopicOptions(retention_ms=60_000)
    register.persist(register.controller.topics.alter("orders", options, ["retention_ms"]))
    register.advance(GenerationState.SEALING)
    register.advance(GenerationState.IN_FORCE, 10)
    assert register.topic.options.retention_ms == 60_000
    assert len(register.topic.partitions) == 2


def test_a_deleted_topic_is_removed_from_all_its_logs() -> None:
    register = Register(ZERO)
    register.persist(register.decisions.move("orders", TWO))
    register.advance(GenerationState.SEALING)
    register.advance(GenerationState.IN_FORCE, 10)
    before = [register.partitions[one] for one in (ZERO, TWO)]
    only = [
        attrs.evolve(record, epoch=2, replicas=[broker], in_sync=[broker], leader=broker)
        for record, broker in zip(before, (1, 2), strict=True)
    ]
    register.record([PartitionDecided(record) for record in only])
    register.persist(register.controller.topics.delete("orders"))
    assert register.controller.state.removals[ORDERS].brokers == {1, 2}


@pytest.mark.parametrize(
    ("generations", "partitions"),
    [
        ([Generation(2, [ZERO], "in_force")], [ZERO]),
        ([Generation(1, [ZERO], "proposed")], [ZERO]),
        ([Generation(1, [ZERO], "in_force")], [ONE]),
        ([Generation(1, [ZERO], "in_force", [5])], [ZERO]),
        ([Generation(1, [ZERO], "in_force"), Generation(2, [ONE], "in_force")], [ONE]),
        ([Generation(1, [ZERO], "in_force"), Generation(2, [ONE], "sealing", [5])], [ZERO]),
        (
            [
                Generation(1, [ZERO], "in_force"),
                Generation(2, [ONE], "sealing"),
                Generation(3, [TWO], "proposed"),
            ],
            [ZERO],
        ),
    ],
)
def test_generations_that_no_register_decides_are_told(
    generations: list[Generation], partitions: list[PartitionId]
) -> None:
    assert generations_fault(generations, partitions)
    topic = TopicRecord("orders", ORDERS, partitions, TopicOptions(), generations=generations)
    assert topic.fault()


def test_a_seal_of_the_register_covers_the_generations_and_is_as_before_without_any() -> None:
    plain = TopicRecord("orders", ORDERS, [ZERO], TopicOptions())
    assert SEALS.of_topic(plain).seal == "8c7e6057eadf606f2bdfd49af066e89d"
    grown = proposed(plain, [ZERO, ONE])
    forged = attrs.evolve(grown, seal=SEALS.of_topic(plain).seal)
    assert not SEALS.knows_topic(forged)
    assert SEALS.knows_topic(SEALS.of_topic(grown))


def test_a_register_that_lost_its_journal_learns_the_generations_from_brokers() -> None:
    lost = Register(ZERO)
    lost.grow(2, 70)
    older = attrs.evolve(lost.topic, generations=[], partitions=[ZERO], version=0, generation=0)
    register = JournaledController(Controller(8, 3))
    former = RegisterGeneration(1, REGISTER.nonce)
    formed = register.controller.form("00c1a5735eed0001", "next", 2, secret=SECRET)
    register.persist(formed)
    for broker, topic in ((1, older), (2, lost.topic), (3, lost.topic)):
        asking = attrs.evolve(join(broker, cluster="00c1a5735eed0001"), register=former)
        inventory = Inventory(list(lost.partitions.values()), [topic])
        admission = register.controller.admit(asking, [inventory])
        register.persist(admission)
        register.controller.admitted(admission)
    learned = register.controller.state.topic("orders")
    assert learned is not None
    assert learned.generations == lost.topic.generations
    assert learned.partitions == lost.topic.partitions


# --- bringing a generation into force --------------------------------------------------------


def begun(*partitions: PartitionId) -> tuple[Register, GenerationChange]:
    """A topic in *partitions* that is to get one more, whose seals are ordered next."""
    register = Register(*partitions)
    register.persist(register.decisions.grow("orders", len(partitions) + 1))
    growth = GenerationChange(register.topic, 0.0)
    assert growth.begin(growth.state, register.partitions) == [MakeLogs()]
    assert growth.logs_made() == [Advance(GenerationState.SEALING)]
    assert growth.logs_made() == [], "it is being decided"
    register.advance(GenerationState.SEALING)
    return register, growth


def test_logs_are_made_then_sealed_then_the_generation_is_in_force() -> None:
    register, growth = begun(ZERO, ONE)
    ordered = growth.begin(GenerationState.SEALING, register.partitions)
    assert ordered == [OrderSeal(ZERO, Epoch(1)), OrderSeal(ONE, Epoch(1))]
    first, second = SealedLog(Epoch(1), Offset(70)), SealedLog(Epoch(1), Offset(90))
    assert growth.sealed(ONE, second) == []
    assert growth.sealed(ZERO, first) == [
        Advance(GenerationState.IN_FORCE, {ZERO: first, ONE: second})
    ]
    assert growth.look(GROW_TIMEOUT_S) == [], "it is being decided"


def test_an_order_that_was_not_carried_out_is_given_again_after_a_while() -> None:
    register, growth = begun(ZERO)
    growth.begin(GenerationState.SEALING, register.partitions)
    assert growth.not_sealed(ZERO, Epoch(1), 3.0) == []
    assert growth.next_look == 3.0 + SEAL_RETRY_S
    assert growth.look(3.0) == []
    assert growth.look(growth.next_look) == [OrderSeal(ZERO, Epoch(1))]
    assert growth.next_look == growth.deadline
    assert growth.look(4.0) == [], "one order at a time"


def test_the_next_leader_is_asked_and_what_an_older_one_says_does_not_count() -> None:
    register, growth = begun(ZERO, ONE)
    growth.begin(GenerationState.SEALING, register.partitions)
    growth.sealed(ZERO, SealedLog(Epoch(1), Offset(70)))
    later = attrs.evolve(register.partitions[ZERO], epoch=2)
    assert growth.decided(later) == [OrderSeal(ZERO, Epoch(2))]
    assert growth.decided(attrs.evolve(later, version=1)) == [], "the same leader"
    assert growth.sealed(ONE, SealedLog(Epoch(1), Offset(90))) == []
    assert growth.sealed(ZERO, SealedLog(Epoch(1), Offset(70))) == []
    assert growth.not_sealed(ZERO, Epoch(1), 1.0) == [], "the order to the present leader is out"
    assert growth.look(2.0) == []
    (advance,) = growth.sealed(ZERO, SealedLog(Epoch(2), Offset(60)))
    assert isinstance(advance, Advance)
    assert advance.ends[ZERO] == SealedLog(Epoch(2), Offset(60))


def test_an_end_of_another_epoch_brings_no_generation_into_force() -> None:
    register, growth = begun(ZERO)
    sealed = {ZERO: SealedLog(Epoch(1), Offset(70))}
    register.record([PartitionDecided(attrs.evolve(register.partitions[ZERO], epoch=2))])
    for ends in (sealed, {}):
        with pytest.raises(NotReadyError, match="not known to be sealed"):
            register.decisions.advance(ORDERS, growth.number, GenerationState.IN_FORCE, ends)


def test_a_generation_is_cancelled_when_time_is_up() -> None:
    register, growth = begun(ZERO)
    growth.begin(GenerationState.SEALING, register.partitions)
    assert growth.look(GROW_TIMEOUT_S) == [Advance(GenerationState.CANCELLED)]
    late = growth.sealed(ZERO, SealedLog(Epoch(1), Offset(70)))
    assert late == [], "it is being cancelled"
    register.advance(GenerationState.CANCELLED)
    for state in GenerationState:
        with pytest.raises(NotReadyError, match="not under way"):
            register.decisions.advance(ORDERS, growth.number, state, {})


def test_a_register_that_restarts_goes_on_where_the_journal_ends() -> None:
    register, growth = begun(ZERO)
    growth.begin(GenerationState.SEALING, register.partitions)
    again = GenerationChange(register.topic, 100.0)
    assert again.begin(again.state, register.partitions) == [OrderSeal(ZERO, Epoch(1))]
    assert again.deadline == 100.0 + GROW_TIMEOUT_S


def test_a_topic_that_is_deleted_meanwhile_gets_no_generation() -> None:
    register, growth = begun(ZERO)
    register.persist(register.controller.topics.delete("orders"))
    with pytest.raises(UnknownTopicError):
        register.decisions.advance(ORDERS, growth.number, GenerationState.CANCELLED, {})


# --- what clients see ------------------------------------------------------------------------


def test_no_message_is_lost_doubled_or_out_of_order_while_a_topic_grows() -> None:
    grown = sum(len(run(seed).topic.generations) > 1 for seed in range(200))
    assert grown > 150, "most runs have a growth"


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_rule_is_needed(variant: str) -> None:
    def is_broken(seed: int) -> bool:
        try:
            run(seed, variant)
        except ViolationError:
            return True
        return False

    assert any(is_broken(seed) for seed in range(1_000))
