"""The leader of a log: effects in their order, answers once and not too early."""

from typing import Any

import pytest

from octopi.errors import Status
from octopi.identifiers import Epoch, Offset, ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder, encode_opaque, scan
from octopi.replication.effects import (
    Append,
    CommitReceipt,
    FindDuplicate,
    FlushLog,
    PublishHighwater,
    Refusal,
    Reply,
    StoreEpochs,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState

ALICE = ProducerId(b"a" * 16)


class Answers:
    """Collects the answers of produce requests by name."""

    def __init__(self) -> None:
        self.given: list[tuple[str, CommitReceipt | Refusal]] = []

    def __call__(self, name: str) -> Any:  # noqa: ANN401
        return lambda content: self.given.append((name, content))


def batch(first: int, count: int = 2) -> bytes:
    builder = BatchBuilder()
    for _ in range(count):
        builder.add(b"value")
    return builder.encode(ALICE, ProducerEpoch(0), Sequence(first))


def leader(*, flush_before_ack: bool = False, epoch: int = 4) -> LogLeader:
    return LogLeader(Epoch(epoch), LogState.empty(flush_before_ack=flush_before_ack))


def produce(machine: LogLeader, data: bytes, answer: Any) -> list[Any]:  # noqa: ANN401
    """Receive and append, as the shell does; return the effects behind the append."""
    found = scan(data)
    *before, effect = machine.receive(data, found, answer)
    assert before in ([], [StoreEpochs()])
    assert effect == Append(data, found, answer)
    effects = machine.appended(machine.log.end, found, answer)
    machine.check_invariants()
    return effects


def test_a_sole_replica_commits_what_it_has_appended_and_then_answers() -> None:
    machine, answer = leader(), Answers()("first")
    effects = produce(machine, batch(0), answer)
    end = Offset(len(batch(0)))
    assert effects == [
        PublishHighwater(end),
        Reply(answer, CommitReceipt(Offset(0), Epoch(4), False)),
    ]


def test_with_flush_before_ack_nothing_is_visible_or_answered_before_the_device_has_it() -> None:
    machine, answers = leader(flush_before_ack=True), Answers()
    first, second = answers("first"), answers("second")
    assert produce(machine, batch(0), first) == [FlushLog()]
    end_of_first = machine.log.end
    assert produce(machine, batch(2), second) == [FlushLog()]
    assert machine.log.highwater == 0
    assert machine.flushed(end_of_first) == [
        PublishHighwater(end_of_first),
        Reply(first, CommitReceipt(Offset(0), Epoch(4), False)),
    ]
    assert machine.flushed(end_of_first) == []
    assert machine.flushed(machine.log.end) == [
        PublishHighwater(machine.log.end),
        Reply(second, CommitReceipt(end_of_first, Epoch(4), False)),
    ]


def test_a_repeated_batch_gets_the_first_receipt_again() -> None:
    machine, answers = leader(), Answers()
    produce(machine, batch(0), answers("first"))
    again = answers("again")
    (effect,) = machine.receive(batch(0), scan(batch(0)), again)
    assert effect == FindDuplicate(Offset(0), 0, again)
    assert machine.found_duplicate(Offset(0), again) == [
        Reply(again, CommitReceipt(Offset(0), Epoch(4), True))
    ]


def test_a_repeated_batch_waits_for_the_commit_of_the_first() -> None:
    machine, answers = leader(flush_before_ack=True), Answers()
    first, other, again = answers("first"), answers("other"), answers("again")
    produce(machine, batch(0), first)
    end_of_first = machine.log.end
    produce(machine, batch(2), other)
    assert machine.found_duplicate(Offset(0), again) == []
    machine.check_invariants()
    assert machine.flushed(end_of_first) == [
        PublishHighwater(end_of_first),
        Reply(first, CommitReceipt(Offset(0), Epoch(4), False)),
        Reply(again, CommitReceipt(Offset(0), Epoch(4), True)),
    ]


def test_a_gap_is_refused_and_nothing_is_appended() -> None:
    machine = leader()
    (effect,) = machine.receive(batch(5), scan(batch(5)), Answers()("gap"))
    assert isinstance(effect, Reply)
    assert isinstance(effect.content, Refusal)
    assert effect.content.status == Status.UNKNOWN_PRODUCER
    assert machine.log.end == 0


@pytest.mark.parametrize(
    "data",
    [batch(0) + batch(5), batch(0) + encode_opaque(bytes(32), b"x")],
    ids=["two runs", "two versions"],
)
def test_one_request_carries_one_run_of_one_producer(data: bytes) -> None:
    (effect,) = leader().receive(data, scan(data), Answers()("mixed"))
    assert isinstance(effect, Reply)
    assert isinstance(effect.content, Refusal)
    assert effect.content.status == Status.MALFORMED_RECORD


def test_a_repeated_version_1_request_waits_for_the_commit_of_all_its_records() -> None:
    machine, answers = leader(flush_before_ack=True), Answers()
    data = [encode_opaque(bytes([number]) * 32, b"x") for number in (1, 2)]
    first, second, again = answers("first"), answers("second"), answers("again")
    produce(machine, data[0], first)
    end_of_first = machine.log.end
    produce(machine, data[1], second)
    both = b"".join(data)
    assert machine.receive(both, scan(both), again) == []
    machine.check_invariants()
    (_, answered) = machine.flushed(end_of_first)
    assert answered == Reply(first, CommitReceipt(Offset(0), Epoch(4), False))
    assert machine.flushed(machine.log.end) == [
        PublishHighwater(machine.log.end),
        Reply(second, CommitReceipt(end_of_first, Epoch(4), False)),
        Reply(again, CommitReceipt(Offset(0), Epoch(4), True)),
    ]


def test_version_1_records_are_taken_as_they_come() -> None:
    data = encode_opaque(bytes(32), b"x")
    machine, answer = leader(), Answers()("old")
    effects = produce(machine, data, answer)
    assert effects[-1] == Reply(answer, CommitReceipt(Offset(0), Epoch(4), False))


def test_a_waiting_producer_is_refused_once_when_leading_ends() -> None:
    machine, answer = leader(flush_before_ack=True), Answers()("waiting")
    produce(machine, batch(0), answer)
    assert machine.stop("deposed") == [Reply(answer, Refusal(Status.UNCOMMITTED, "deposed"))]
    assert machine.stop("deposed") == []


def test_a_receipt_names_the_epoch_that_wrote_its_records() -> None:
    log = LogState.empty()
    old = LogLeader(Epoch(1), log)
    produce(old, batch(0), Answers()("old"))
    end_of_old = log.end
    new = LogLeader(Epoch(2), log)
    again = Answers()("again")
    assert new.found_duplicate(Offset(0), again) == [
        Reply(again, CommitReceipt(Offset(0), Epoch(1), True))
    ]
    effects = produce(new, batch(2), again)
    assert effects[-1] == Reply(again, CommitReceipt(end_of_old, Epoch(2), False))


def test_a_new_leader_knows_the_end_of_its_log_once_the_records_it_found_are_committed() -> None:
    log = LogState.empty()
    old = LogLeader(Epoch(1), log, replicated=True)
    old.require(frozenset({2}), 2, durable=False)
    assert old.knows_end(old.log.highwater)
    produce(old, batch(0), Answers()("old"))
    assert old.knows_end(old.log.highwater), (
        "what is under way is acknowledged by this leader alone"
    )
    new = LogLeader(Epoch(2), log, replicated=True)
    new.require(frozenset({2}), 2, durable=False)
    assert not new.knows_end(new.log.highwater), "the old one may have acknowledged it"
    new.acknowledged(2, log.end)
    assert new.knows_end(new.log.highwater)


def test_nothing_is_committed_while_too_few_are_in_sync() -> None:
    machine, answers = LogLeader(Epoch(4), LogState.empty(min_insync=2), replicated=True), Answers()
    machine.require(frozenset({2}), 2, durable=False)
    answer = answers("first")
    produce(machine, batch(0), answer)
    end = machine.log.end
    assert machine.require(frozenset(), 1, durable=False) == []
    assert machine.acknowledged(2, end) == []
    effects = machine.require(frozenset({2}), 2, durable=False)
    assert effects[0] == PublishHighwater(end)


def test_what_an_older_epoch_committed_unheard_is_served_once_enough_are_in_sync() -> None:
    state = LogState.empty(min_insync=2)
    older = LogLeader(Epoch(3), state, replicated=True)
    older.require(frozenset({2}), 2, durable=False)
    produce(older, batch(0), Answers()("of an older epoch"))
    machine = LogLeader(Epoch(4), state, replicated=True)
    machine.require(frozenset(), 1, durable=False)
    assert not machine.knows_end(state.highwater)
    assert machine.acknowledged(2, state.end) == []
    assert machine.require(frozenset({2}), 2, durable=False)[0] == PublishHighwater(state.end)
    assert machine.knows_end(state.highwater)


def test_a_commit_waits_for_the_slowest_in_sync_replica_and_for_no_other() -> None:
    machine, answers = LogLeader(Epoch(4), LogState.empty(), replicated=True), Answers()
    machine.require(frozenset({2, 3}), 3, durable=False)
    first, second = answers("first"), answers("second")
    produce(machine, batch(0), first)
    end_of_first = machine.log.end
    produce(machine, batch(2), second)
    assert machine.acknowledged(4, machine.log.end) == [], "4 is not in sync"
    assert machine.acknowledged(2, machine.log.end) == []
    assert machine.acknowledged(3, end_of_first) == [
        PublishHighwater(end_of_first),
        Reply(first, CommitReceipt(Offset(0), Epoch(4), False)),
    ]
    assert machine.acknowledged(3, Offset(0)) == [], "an acknowledgement that came late"
    machine.forget(3)
    assert machine.acknowledged(2, machine.log.end) == []
    assert machine.acknowledged(3, machine.log.end)[0] == PublishHighwater(machine.log.end)
    machine.check_invariants()
