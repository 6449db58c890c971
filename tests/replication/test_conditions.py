"""Records that are appended on a condition: what refutes it, and when the sender hears of that."""

from typing import Any

import pytest

from octopi.conditions import NO_RECORD, Condition, LastRecord
from octopi.errors import Status
from octopi.identifiers import BrokerId, Epoch, Offset, ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder, encode_opaque, scan
from octopi.replication.effects import (
    Append,
    CommitReceipt,
    FindDuplicate,
    PublishHighwater,
    Refusal,
    Reply,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState

ALICE, BOB = ProducerId(b"a" * 16), ProducerId(b"b" * 16)
FOLLOWER = BrokerId(2)


class Log:
    """A log that is led, with one follower in sync."""

    def __init__(self, *, follower: bool = True) -> None:
        self.machine = LogLeader(Epoch(4), LogState.empty(), replicated=follower)
        if follower:
            self.machine.require(frozenset({FOLLOWER}), 2, durable=False)
        self.answers: dict[str, CommitReceipt | Refusal] = {}

    def produce(
        self, name: str, records: bytes, condition: Condition | None = None
    ) -> CommitReceipt | Refusal | None:
        """Send *records*; return the answer if there is one already."""

        def answer(content: CommitReceipt | Refusal) -> None:
            self.answers[name] = content

        found = scan(records)
        self.perform(self.machine.receive(records, found, answer, condition))
        return self.answers.get(name)

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case Append(_, found, answer):
                    self.perform(self.machine.appended(self.machine.log.end, found, answer))
                case FindDuplicate(offset, 0, answer):
                    self.perform(self.machine.found_duplicate(offset, answer))
                case Reply(answer, content):
                    answer(content)
        self.machine.check_invariants()

    def commit(self) -> None:
        self.perform(self.machine.acknowledged(FOLLOWER, self.machine.log.end))

    @property
    def end(self) -> Offset:
        return self.machine.log.end


def record(producer: ProducerId = ALICE, sequence: int = 0, *, epoch: int = 0) -> bytes:
    builder = BatchBuilder()
    builder.add(b"value")
    return builder.encode(producer, ProducerEpoch(epoch), Sequence(sequence))


def at(end: int) -> Condition:
    return Condition(expected_end=Offset(end))


def after(epoch: int, sequence: int) -> Condition:
    return Condition(after=LastRecord(epoch, sequence))


def refusal_of(answer: object) -> tuple[Status, Offset | None]:
    assert isinstance(answer, Refusal)
    return answer.status, answer.offset


def test_records_are_appended_where_the_log_ends() -> None:
    log = Log(follower=False)
    assert isinstance(log.produce("first", record(), at(0)), CommitReceipt)
    receipt = log.produce("second", record(BOB), at(log.end))
    assert isinstance(receipt, CommitReceipt)
    assert receipt.offset == len(record())


@pytest.mark.parametrize("expected", [0, 10, 10_000])
def test_nothing_is_appended_where_it_does_not_and_the_sender_gets_the_end(expected: int) -> None:
    log = Log(follower=False)
    log.produce("first", record())
    end = log.end
    assert refusal_of(log.produce("second", record(BOB), at(expected))) == (
        Status.CONDITION_FAILED,
        end,
    )
    assert log.end == end


def test_of_two_that_expect_the_same_end_one_is_appended() -> None:
    log = Log()
    assert log.produce("winner", record(), at(0)) is None
    assert log.produce("loser", record(BOB), at(0)) is None, "its rival is not committed yet"
    log.commit()
    assert isinstance(log.answers["winner"], CommitReceipt)
    assert refusal_of(log.answers["loser"]) == (Status.CONDITION_FAILED, log.end)


def test_a_refusal_waits_for_all_that_the_log_held_then_and_not_for_what_came_later() -> None:
    log = Log()
    log.produce("winner", record())
    end = log.end
    log.produce("loser", record(BOB), at(0))
    log.produce("later", record(BOB))
    log.perform(log.machine.acknowledged(FOLLOWER, end))
    assert refusal_of(log.answers["loser"]) == (Status.CONDITION_FAILED, end)
    assert "later" not in log.answers


def test_what_would_refute_it_may_be_taken_back_so_a_leader_that_ends_refuses_nothing() -> None:
    log = Log()
    log.produce("winner", record())
    log.produce("loser", record(BOB), at(0))
    log.perform(log.machine.stop("this broker leads no more"))
    assert refusal_of(log.answers["loser"]) == (Status.NOT_READY, None)
    assert refusal_of(log.answers["winner"]) == (Status.UNCOMMITTED, None)


def test_a_repetition_gets_its_receipt_although_the_log_has_another_end_by_now() -> None:
    log = Log()
    log.produce("first", record(), at(0))
    log.produce("other", record(BOB))
    assert log.produce("again", record(), at(0)) is None
    log.commit()
    assert log.answers["again"] == CommitReceipt(Offset(0), Epoch(4), True)


def test_a_new_leader_that_lacks_the_first_copy_looks_at_the_condition_anew() -> None:
    old = Log()
    old.produce("first", record(), at(0))
    new = Log(follower=False)  # it never got the record, which the old one takes back
    assert isinstance(new.produce("again", record(), at(0)), CommitReceipt)
    newer = Log(follower=False)
    newer.produce("other", record(BOB))
    assert refusal_of(newer.produce("again", record(), at(0))) == (
        Status.CONDITION_FAILED,
        newer.end,
    )


def test_after_a_record_of_the_producer_comes_the_next_and_no_other() -> None:
    log = Log(follower=False)
    assert isinstance(log.produce("1", record(), Condition(after=NO_RECORD)), CommitReceipt)
    assert isinstance(log.produce("2", record(epoch=3), after(0, 0)), CommitReceipt)
    assert isinstance(log.produce("3", record(epoch=3, sequence=1), after(3, 0)), CommitReceipt)
    for name, wrong in enumerate([NO_RECORD, LastRecord(3, 0), LastRecord(0, 1)]):
        answer = log.produce(f"wrong {name}", record(epoch=4), Condition(after=wrong))
        assert refusal_of(answer) == (Status.CONDITION_FAILED, log.end)


def test_records_of_other_producers_do_not_matter_to_after() -> None:
    log = Log(follower=False)
    log.produce("other", record(BOB))
    assert isinstance(log.produce("1", record(), Condition(after=NO_RECORD)), CommitReceipt)


def test_both_conditions_have_to_hold() -> None:
    log = Log(follower=False)
    log.produce("other", record(BOB))
    assert refusal_of(log.produce("1", record(), Condition(Offset(0), NO_RECORD))) == (
        Status.CONDITION_FAILED,
        log.end,
    )
    answer = log.produce("2", record(), Condition(log.end, LastRecord(1, 1)))
    assert refusal_of(answer) == (Status.CONDITION_FAILED, log.end)
    assert isinstance(log.produce("3", record(), Condition(log.end, NO_RECORD)), CommitReceipt)


def test_records_of_version_1_may_expect_an_end_and_come_after_none() -> None:
    log = Log(follower=False)
    first, second = encode_opaque(b"h" * 32, b"a"), encode_opaque(b"i" * 32, b"b")
    assert isinstance(log.produce("1", first, at(0)), CommitReceipt)
    assert log.produce("again", first, at(0)) == CommitReceipt(Offset(0), Epoch(4), True)
    assert refusal_of(log.produce("2", second, at(0))) == (Status.CONDITION_FAILED, log.end)
    answer = log.produce("3", second, Condition(after=NO_RECORD))
    assert refusal_of(answer) == (Status.CONDITION_FAILED, log.end)


def test_a_gap_or_a_fence_is_told_before_the_condition() -> None:
    log = Log(follower=False)
    log.produce("1", record(epoch=2))
    assert refusal_of(log.produce("gap", record(epoch=2, sequence=5), at(0)))[0] is (
        Status.SEQUENCE_GAP
    )
    assert refusal_of(log.produce("old", record(epoch=1), at(0)))[0] is Status.PRODUCER_FENCED


def test_a_highwater_mark_is_published_before_the_refusal_that_names_it() -> None:
    log = Log()
    log.produce("winner", record())
    log.produce("loser", record(BOB), at(0))
    effects = log.machine.acknowledged(FOLLOWER, log.end)
    kinds = [type(one) for one in effects]
    assert kinds == [PublishHighwater, Reply, Reply]
    log.perform(effects)
