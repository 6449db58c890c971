"""Seals of logs: what they refuse, what they don't, and that they outlast leaders and followers."""

from __future__ import annotations

import attrs
import pytest

from octopi.conditions import Condition
from octopi.errors import RefusedError, Status
from octopi.generation_record import Generation
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TopicId,
)
from octopi.limits import PRODUCERS_PER_LOG_MAX, SEALS_PER_PARTITION_MAX
from octopi.model import TopicOptions, TopicRecord
from octopi.record import BatchBuilder, Run, encode_opaque, scan
from octopi.replication.effects import Append, CommitReceipt, Refusal, Reply
from octopi.replication.generation_seals import (
    GenerationSeal,
    is_seal_key,
    note_generations,
    seal_id,
    seal_key,
)
from octopi.replication.internal_log import (
    DamagedEntryError,
    Fold,
    decode_records,
    encode,
    encode_records,
    next_records,
    seal_entry,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.partition_leader import PartitionLeader
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_sequences import ProducerSequences
from octopi.roles.broker.received_records import scan_produced
from octopi.wire.messages import Followed, PartitionRecord

TOPIC, OTHER = TopicId("0" * 16), TopicId("1" * 16)
INTERNAL = TopicId(SUBSCRIPTIONS_LOG)
PARTITION = PartitionId(3)
PRODUCER = ProducerId(b"p" * 16)
GROWN = TopicRecord(
    "orders",
    TOPIC,
    [3, 4],
    TopicOptions(),
    generations=[Generation(1, [3], "in_force", [9]), Generation(2, [3, 4], "in_force")],
)


def seal_of(topic_id: TopicId, internal: LogState) -> GenerationSeal:
    """The seal of the log of a topic, which has one."""
    seal = GenerationSeal.of(topic_id, internal)
    assert seal is not None
    return seal


def batch(first: int, count: int = 1, epoch: int = 0) -> bytes:
    """Records of `PRODUCER`."""
    builder = BatchBuilder()
    for _ in range(count):
        builder.add(b"value")
    return builder.encode(PRODUCER, ProducerEpoch(epoch), Sequence(first))


def batch_of(producer: ProducerId, epoch: int) -> bytes:
    """The first record of *producer* in *epoch*."""
    builder = BatchBuilder()
    builder.add(b"")
    return builder.encode(producer, ProducerEpoch(epoch), Sequence(0))


class Partition:
    """The leader of a partition with two topics and its internal log; another replica, broker 2, is
    in sync if *is_replicated*."""

    def __init__(self, *, is_replicated: bool = False) -> None:
        brokers = [1, 2] if is_replicated else [1]
        record = PartitionRecord(PARTITION, Epoch(1), 0, 1, 1, brokers, brokers)
        self.leader = PartitionLeader(record, 0.0, durable=False, lag_s_max=1.0)
        self.answers: list[CommitReceipt | Refusal] = []
        for topic_id in (TOPIC, INTERNAL, OTHER):
            self.leader.add_log(topic_id, LogState.empty())

    def log(self, topic_id: TopicId) -> LogLeader:
        return self.leader.logs[topic_id]

    def append(
        self,
        topic_id: TopicId,
        records: bytes,
        generation: int = 1,
        condition: Condition | None = None,
    ) -> CommitReceipt | Refusal | None:
        """Append as the shell does; return the answer, if there is one already."""
        answers: list[CommitReceipt | Refusal] = []
        log, found = self.log(topic_id), scan(records)
        effects = log.receive(records, found, answers.append, condition, generation)
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, Append):
                effects += log.appended(log.log.end, found, answers.append)
            elif isinstance(effect, Reply):
                effect.answer(effect.content)
        self.answers = answers
        return answers[0] if answers else None

    def seal(self, generation: int, topic_id: TopicId = TOPIC) -> CommitReceipt | Refusal | None:
        entry = seal_entry(topic_id, generation)
        records = next_records(SUBSCRIPTIONS_LOG, self.log(INTERNAL), [entry], 1_000)
        return self.append(INTERNAL, records)

    def produce(self, first: int, generation: int = 1, topic_id: TopicId = TOPIC) -> Status | None:
        """Produce one record; return the status of the refusal, if it is one."""
        answer = self.append(topic_id, batch(first), generation)
        return answer.status if isinstance(answer, Refusal) else None


def test_from_the_seal_on_a_log_takes_only_messages_of_the_next_generation() -> None:
    partition = Partition()
    assert partition.produce(0) is None
    partition.seal(2)
    assert partition.produce(1) is Status.STALE_ROUTE
    note_generations(partition.log(TOPIC).log, GROWN)
    assert partition.produce(1, generation=2) is None
    assert partition.produce(0, topic_id=OTHER) is None
    partition.seal(3)
    assert partition.produce(2, generation=2) is Status.STALE_ROUTE


@pytest.mark.parametrize("version", [1, 2])
def test_a_sealed_log_takes_messages_of_the_next_generation_when_its_end_is_known(
    version: int,
) -> None:
    """Readers that know only the first generation may be sent nothing that lies behind the end."""
    partition = Partition()
    partition.seal(2)
    records = batch(0) if version == 2 else encode_opaque(b"r" * 32, b"value")
    answer = partition.append(TOPIC, records, 2)
    assert isinstance(answer, Refusal)
    assert answer.status is Status.NOT_READY
    note_generations(partition.log(TOPIC).log, GROWN)
    assert not isinstance(partition.append(TOPIC, records, 2), Refusal)


def test_a_seal_counts_before_it_is_committed() -> None:
    partition = Partition(is_replicated=True)
    assert partition.seal(2) is None, "broker 2 has not acknowledged it"
    assert partition.produce(0) is Status.STALE_ROUTE


def test_a_repetition_of_what_is_stored_gets_its_receipt_behind_the_seal() -> None:
    partition = Partition()
    receipt = partition.append(TOPIC, batch(0, 2))
    assert isinstance(receipt, CommitReceipt)
    partition.seal(2)
    found = scan(batch(0, 2))
    effects = partition.log(TOPIC).receive(batch(0, 2), found, lambda answer: None)
    assert [type(one).__name__ for one in effects] == ["FindDuplicate"]


@pytest.mark.parametrize("first", [2, 3, 9])
def test_no_record_is_refused_as_stale_that_may_be_stored(first: int) -> None:
    """A batch that the log has in part, or may have had, is no stale one."""
    partition = Partition()
    partition.append(TOPIC, batch(0, 2))
    partition.seal(2)
    assert partition.produce(first) is Status.STALE_ROUTE
    answer = partition.append(TOPIC, batch(1, 2))
    assert isinstance(answer, Refusal)
    assert answer.status is Status.SEQUENCE_GAP
    unknown = BatchBuilder()
    unknown.add(b"value")
    records = unknown.encode(ProducerId(b"q" * 16), ProducerEpoch(0), Sequence(5))
    answer = partition.append(TOPIC, records)
    assert isinstance(answer, Refusal)
    assert answer.status is Status.UNKNOWN_PRODUCER, "it may have been forgotten"


def test_a_stale_batch_with_a_condition_is_refused_as_stale() -> None:
    partition = Partition()
    partition.seal(2)
    answer = partition.append(TOPIC, batch(0), 1, Condition(expected_end=Offset(7)))
    assert isinstance(answer, Refusal)
    assert answer.status is Status.STALE_ROUTE


def test_a_record_of_the_topic_with_a_later_generation_in_force_seals_the_log_as_well() -> None:
    partition = Partition()
    note_generations(partition.log(TOPIC).log, GROWN)
    assert partition.produce(0) is Status.STALE_ROUTE
    assert partition.produce(0, generation=2) is None


def test_the_seal_of_a_generation_that_was_cancelled_counts_no_more() -> None:
    partition = Partition()
    log = partition.log(TOPIC).log
    partition.seal(2)
    cancelled = [Generation(1, [3], "in_force"), Generation(2, [3, 4], "cancelled")]
    note_generations(log, attrs.evolve(GROWN, partitions=[3], generations=cancelled))
    assert partition.produce(0) is None
    partition.seal(3)
    assert partition.produce(1) is Status.STALE_ROUTE


def test_after_a_cancelled_generation_the_one_in_force_still_counts() -> None:
    partition = Partition()
    partition.seal(2)
    partition.seal(3)
    third = Generation(3, [3, 5], "cancelled")
    log = partition.log(TOPIC).log
    note_generations(log, attrs.evolve(GROWN, generations=[*GROWN.generations, third]))
    assert partition.produce(0) is Status.STALE_ROUTE
    assert partition.produce(0, generation=2) is None


def test_a_seal_in_an_older_record_of_the_topic_says_nothing() -> None:
    partition = Partition()
    note_generations(partition.log(TOPIC).log, attrs.evolve(GROWN, generations=[]))
    partition.seal(2)
    assert partition.produce(0) is Status.STALE_ROUTE


def test_seals_lie_among_the_entries_of_the_internal_log_and_are_none() -> None:
    partition = Partition()
    before, behind = (encode(SUBSCRIPTIONS_LOG, key, {"a": 1}) for key in ("s/1", "s/2"))
    records = encode_records(SUBSCRIPTIONS_LOG, [before], Epoch(1), Sequence(0), 0)
    entry = seal_entry(TOPIC, 2)
    records += next_records(SUBSCRIPTIONS_LOG, partition.log(INTERNAL), [entry], 0)
    records += encode_records(SUBSCRIPTIONS_LOG, [behind], Epoch(1), Sequence(1), 0)
    read = decode_records(SUBSCRIPTIONS_LOG, PARTITION, records, Offset(0))
    assert [one.key for one in read] == ["s/1", "s/2"]
    fold = Fold(SUBSCRIPTIONS_LOG, PARTITION)
    fold.read(records)
    assert fold.end == len(records)


@pytest.mark.parametrize("fault", ["key", "value", "producer"])
def test_a_seal_that_was_written_otherwise_is_damage(fault: str) -> None:
    key = b"g/nothing" if fault == "key" else seal_key(TOPIC)
    builder = BatchBuilder()
    builder.add(b"x" if fault == "value" else b"", key)
    producer = PRODUCER if fault == "producer" else seal_id(seal_key(TOPIC))
    records = builder.encode(producer, ProducerEpoch(2), Sequence(0))
    with pytest.raises(DamagedEntryError):
        decode_records(SUBSCRIPTIONS_LOG, PARTITION, records, Offset(0))


def test_a_follower_that_begins_behind_a_seal_is_told_of_it() -> None:
    partition = Partition()
    partition.seal(5)
    internal = partition.log(INTERNAL).log
    empty = Followed(PARTITION, Epoch(1), 1, 1, SUBSCRIPTIONS_LOG, Offset(0), Offset(0))
    follower = LogState.empty()
    follower.restart(internal.end, PriorState.told(internal.past(internal.end).tell(empty)))
    assert seal_of(TOPIC, follower).number == 5


def run(producer: ProducerId, epoch: int) -> Run:
    """The first record of a producer in *epoch*."""
    (found,) = scan(batch_of(producer, epoch)).runs
    return found


def test_seals_are_not_forgotten_when_many_producers_are_fenced() -> None:
    table = ProducerSequences(producers_max=4)
    table.record(run(seal_id(seal_key(TOPIC)), 2), Offset(0))
    for one in range(9):
        producer = ProducerId(bytes([one]) * 16)
        table.record(run(producer, 1), Offset(10 * (one + 1)))
    table.check_invariants()
    assert table.last_epoch(seal_id(seal_key(TOPIC))) == 2
    again = ProducerSequences.load(table.dump())
    assert again.last_epoch(seal_id(seal_key(TOPIC))) == 2


def test_a_partition_has_room_for_a_bounded_number_of_seals() -> None:
    assert SEALS_PER_PARTITION_MAX < PRODUCERS_PER_LOG_MAX
    internal = LogState.empty()
    for one in range(SEALS_PER_PARTITION_MAX):
        sealed = run(seal_id(seal_key(TopicId(f"{one:016x}"))), 2)
        internal.sequences.record(sealed, Offset(one))
    assert seal_of(TopicId("0" * 16), internal).has_room
    assert not seal_of(TopicId("f" * 16), internal).has_room


def test_a_log_whose_topic_has_no_proper_id_is_led_and_never_sealed() -> None:
    """An earlier register took such topics from brokers without a check."""
    assert GenerationSeal.of(TopicId("../x"), LogState.empty()) is None


def test_no_client_writes_with_the_id_of_a_seal() -> None:
    records = batch_of(seal_id(seal_key(TOPIC)), 9)
    with pytest.raises(RefusedError, match="no client may use") as refused:
        scan_produced(records)
    assert refused.value.status is Status.MALFORMED_RECORD


def test_keys_of_seals_are_told_from_those_of_other_entries() -> None:
    assert is_seal_key(seal_key(TOPIC))
    assert not is_seal_key(b"s/1")
    with pytest.raises(ValueError, match="no seal"):
        seal_id(b"s/" + TOPIC.encode())
