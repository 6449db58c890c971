"""Fences: what they refuse, how they are stored, and that they outlast entries and followers."""

from __future__ import annotations

import pytest

from octopi.errors import Status
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
from octopi.record import BatchBuilder, producer_id_of, scan
from octopi.replication.effects import Append, CommitReceipt, Refusal, Reply
from octopi.replication.internal_log import (
    DamagedEntryError,
    EncodedEntry,
    Fold,
    decode_records,
    encode,
    encode_records,
    fence_entry,
    next_records,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.partition_leader import PartitionLeader
from octopi.replication.prior_state import PriorState
from octopi.replication.producer_fences import ProducerFences, last_epoch
from octopi.wire.messages import Followed, PartitionRecord

TOPIC, OTHER = TopicId("0" * 16), TopicId("1" * 16)
INTERNAL = TopicId(SUBSCRIPTIONS_LOG)
PARTITION = PartitionId(3)
PRICING = producer_id_of("producer", "pricing")


class Partition:
    """The leader of a partition with two topics and its internal log."""

    def __init__(self, order: tuple[TopicId, ...] = (TOPIC, INTERNAL, OTHER)) -> None:
        record = PartitionRecord(PARTITION, Epoch(1), 0, 1, 1, [1], [1])
        self.leader = PartitionLeader(record, 0.0, durable=False, lag_s_max=1.0)
        for topic_id in order:
            self.leader.add_log(topic_id, LogState.empty())

    def log(self, topic_id: TopicId) -> LogLeader:
        return self.leader.logs[topic_id]

    def append(self, topic_id: TopicId, records: bytes) -> CommitReceipt | Refusal:
        """Append as the shell does; return the answer."""
        answers: list[CommitReceipt | Refusal] = []
        log, found = self.log(topic_id), scan(records)
        for effect in log.receive(records, found, answers.append):
            if isinstance(effect, Append):
                for one in log.appended(log.log.end, found, answers.append):
                    if isinstance(one, Reply):
                        one.answer(one.content)
            elif isinstance(effect, Reply):
                effect.answer(effect.content)
        (answer,) = answers
        return answer

    def fence(self, topic_id: TopicId, producer: ProducerId, epoch: int) -> None:
        entry = fence_entry(topic_id, producer, ProducerEpoch(epoch))
        records = next_records(SUBSCRIPTIONS_LOG, self.log(INTERNAL), [entry], 1_000)
        assert isinstance(self.append(INTERNAL, records), CommitReceipt)

    def produce(self, topic_id: TopicId, epoch: int, first: int = 0) -> Status | None:
        """Produce one record of `PRICING`; return the status of the refusal, if it is one."""
        batch = BatchBuilder()
        batch.add(b"value")
        records = batch.encode(PRICING, ProducerEpoch(epoch), Sequence(first))
        answer = self.append(topic_id, records)
        return answer.status if isinstance(answer, Refusal) else None


def test_an_id_is_made_from_a_name_as_other_clients_make_it() -> None:
    assert PRICING.hex() == "a029064a0353ad476b454b853355adf9"
    assert producer_id_of("spark", "pricing") != PRICING


@pytest.mark.parametrize("order", [(TOPIC, INTERNAL, OTHER), (INTERNAL, OTHER, TOPIC)])
def test_records_of_lower_epochs_are_refused_in_that_log_from_the_fence_on(
    order: tuple[TopicId, ...],
) -> None:
    partition = Partition(order)
    assert partition.produce(TOPIC, 1) is None
    partition.fence(TOPIC, PRICING, 2)
    assert partition.produce(TOPIC, 1, 1) is Status.PRODUCER_FENCED
    assert partition.produce(TOPIC, 1, 0) is Status.PRODUCER_FENCED, "a repetition as well"
    assert partition.produce(OTHER, 1) is None
    assert partition.produce(TOPIC, 2) is None
    assert partition.produce(TOPIC, 2, 1) is None


def test_the_last_epoch_is_that_of_the_fence_or_of_the_newest_record() -> None:
    partition = Partition()
    log, fences = partition.log(TOPIC).log, partition.log(TOPIC).fences
    assert fences is not None
    assert last_epoch(log, fences, PRICING) is None
    partition.produce(TOPIC, 0)
    assert last_epoch(log, fences, PRICING) == 0
    partition.fence(TOPIC, PRICING, 4)
    assert last_epoch(log, fences, PRICING) == 4
    partition.produce(TOPIC, 7)
    assert last_epoch(log, fences, PRICING) == 7


def test_a_fence_of_one_log_has_nothing_to_do_with_another_log_or_producer() -> None:
    partition = Partition()
    partition.fence(TOPIC, PRICING, 2)
    for topic_id, producer in ((OTHER, PRICING), (TOPIC, ProducerId(b"q" * 16))):
        fences = ProducerFences(topic_id, partition.log(INTERNAL).log)
        assert fences.epoch(producer) is None


def test_fences_lie_among_the_entries_of_the_internal_log_and_are_none() -> None:
    partition = Partition()
    before = encode(SUBSCRIPTIONS_LOG, "s/1", {"a": 1})
    behind = encode(SUBSCRIPTIONS_LOG, "s/2", {"b": 2})
    records = encode_records(SUBSCRIPTIONS_LOG, [before], Epoch(1), Sequence(0), 0)
    records += next_records(
        SUBSCRIPTIONS_LOG,
        partition.log(INTERNAL),
        [fence_entry(TOPIC, PRICING, ProducerEpoch(9))],
        0,
    )
    records += encode_records(SUBSCRIPTIONS_LOG, [behind], Epoch(1), Sequence(1), 0)
    read = decode_records(SUBSCRIPTIONS_LOG, PARTITION, records, Offset(0))
    assert [one.key for one in read] == ["s/1", "s/2"]
    fold = Fold(SUBSCRIPTIONS_LOG, PARTITION)
    fold.read(records)
    assert [*fold.values] == ["s/1", "s/2"]
    assert fold.end == len(records)


@pytest.mark.parametrize("fault", ["key", "value", "producer"])
def test_a_fence_that_was_written_otherwise_is_damage(fault: str) -> None:
    good = fence_entry(TOPIC, PRICING, ProducerEpoch(1))
    batch = BatchBuilder()
    batch.add(b"x" if fault == "value" else b"", b"f/x/y" if fault == "key" else good.key)
    producer = ProducerId(b"q" * 16)
    if fault == "value":
        partition = Partition()
        records = next_records(SUBSCRIPTIONS_LOG, partition.log(INTERNAL), [good], 0)
        producer = ProducerId(records[9:25])
    records = batch.encode(producer, ProducerEpoch(1), Sequence(0))
    with pytest.raises(DamagedEntryError):
        decode_records(SUBSCRIPTIONS_LOG, PARTITION, records, Offset(0))


def test_a_follower_that_begins_behind_a_fence_is_told_of_it() -> None:
    partition = Partition()
    partition.fence(TOPIC, PRICING, 5)
    internal = partition.log(INTERNAL).log
    empty = Followed(PARTITION, Epoch(1), 1, 1, SUBSCRIPTIONS_LOG, Offset(0), Offset(0))
    follower = LogState.empty()
    follower.restart(internal.end, PriorState.told(internal.past(internal.end).tell(empty)))
    assert ProducerFences(TOPIC, follower).epoch(PRICING) == 5


def test_other_entries_keep_their_form() -> None:
    partition = Partition()
    entry = encode(SUBSCRIPTIONS_LOG, "s/1", {})
    assert entry == EncodedEntry(b"s/1", entry.value)
    records = next_records(SUBSCRIPTIONS_LOG, partition.log(INTERNAL), [entry, entry], 0)
    (run,) = scan(records).runs
    assert run.count == 2
