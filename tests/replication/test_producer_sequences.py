"""Duplicates are recognised exactly, gaps are refused, from the log alone."""

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octopi.errors import Status
from octopi.identifiers import SUBSCRIPTIONS_LOG, Offset, ProducerEpoch, ProducerId, Sequence
from octopi.limits import (
    PRODUCERS_PER_LOG_MAX,
    RECENT_BATCHES_COUNT,
    REQUEST_IDS_PER_LOG_MAX,
)
from octopi.record import BatchBuilder, Run, encode_opaque, record_end, scan
from octopi.replication.producer_sequences import (
    Duplicate,
    Fresh,
    ProducerSequences,
    Refused,
    Repeated,
    producer_of,
)

ALICE = ProducerId(b"a" * 16)
BOB = ProducerId(b"b" * 16)


def run(producer: ProducerId, first: int, count: int, epoch: int = 0) -> Run:
    return Run(producer, ProducerEpoch(epoch), Sequence(first), count, 0, count * 100)


def test_a_producer_begins_at_zero_and_counts_on() -> None:
    table = ProducerSequences()
    assert table.check(run(ALICE, 0, 3)) == Fresh()
    table.record(run(ALICE, 0, 3), Offset(0))
    assert table.check(run(ALICE, 3, 1)) == Fresh()
    assert table.next_sequence(ALICE) == 3


def test_a_repeated_batch_is_found_between_batches_of_other_producers() -> None:
    table = ProducerSequences()
    table.record(run(ALICE, 0, 1), Offset(0))
    table.record(run(BOB, 0, 1), Offset(100))
    table.record(run(ALICE, 1, 2), Offset(200))
    assert table.check(run(ALICE, 0, 1)) == Duplicate(Offset(0), 0)
    assert table.check(run(BOB, 0, 1)) == Duplicate(Offset(100), 0)
    assert table.check(run(ALICE, 1, 2)) == Duplicate(Offset(200), 0)


def test_a_repeated_batch_within_a_scanned_run_is_found_by_its_count_from_the_start() -> None:
    table = ProducerSequences()
    table.record(run(ALICE, 0, 50), Offset(1000))
    assert table.check(run(ALICE, 20, 5)) == Duplicate(Offset(1000), 20)


def test_gaps_and_batches_with_other_boundaries_are_refused() -> None:
    table = ProducerSequences()
    table.record(run(ALICE, 0, 3), Offset(0))
    gap, cut = table.check(run(ALICE, 4, 1)), table.check(run(ALICE, 2, 2))
    assert isinstance(gap, Refused)
    assert gap.status == Status.SEQUENCE_GAP
    assert isinstance(cut, Refused)
    assert cut.status == Status.SEQUENCE_GAP


def test_an_unknown_producer_can_only_begin_at_zero() -> None:
    verdict = ProducerSequences().check(run(ALICE, 7, 1))
    assert isinstance(verdict, Refused)
    assert verdict.status == Status.UNKNOWN_PRODUCER


def test_a_higher_producer_epoch_begins_anew_and_fences_the_lower() -> None:
    table = ProducerSequences()
    table.record(run(ALICE, 0, 3), Offset(0))
    skipping = table.check(run(ALICE, 3, 1, epoch=1))
    assert isinstance(skipping, Refused)
    assert skipping.status == Status.SEQUENCE_GAP
    assert table.check(run(ALICE, 0, 1, epoch=1)) == Fresh()
    table.record(run(ALICE, 0, 1, epoch=1), Offset(300))
    old = table.check(run(ALICE, 3, 1))
    assert isinstance(old, Refused)
    assert old.status == Status.PRODUCER_FENCED


def test_a_batch_beyond_memory_is_known_to_be_stored_without_its_offset() -> None:
    table = ProducerSequences(batches_max=2)
    for number in range(3):
        table.record(run(ALICE, number, 1), Offset(number * 100))
    verdict = table.check(run(ALICE, 0, 1))
    assert isinstance(verdict, Refused)
    assert verdict.status == Status.RECEIPT_FORGOTTEN
    assert table.check(run(ALICE, 1, 1)) == Duplicate(Offset(100), 0)


def test_the_producer_silent_longest_is_forgotten_first() -> None:
    table = ProducerSequences(producers_max=2)
    carol = ProducerId(b"c" * 16)
    table.record(run(ALICE, 0, 1), Offset(0))
    table.record(run(BOB, 0, 1), Offset(100))
    table.record(run(ALICE, 1, 1), Offset(200))
    table.record(run(carol, 0, 1), Offset(300))
    assert len(table) == 2
    assert table.next_sequence(BOB) == 0
    assert table.next_sequence(ALICE) == 2


def test_an_internal_log_never_forgets_its_own_producer() -> None:
    own = producer_of(SUBSCRIPTIONS_LOG)
    table = ProducerSequences(producers_max=2)
    table.record(run(own, 0, 3), Offset(0))
    for number in range(3):
        table.record(run(ProducerId(bytes([number] * 16)), 0, 1), Offset(100 * (number + 3)))
        table.check_invariants()
    assert table.next_sequence(own) == 3
    assert [*table.newest_first()] == [ProducerId(b"\2" * 16), own]


def test_a_log_remembers_a_bounded_number_of_producers_and_receipts() -> None:
    table = ProducerSequences()
    for number in range(PRODUCERS_PER_LOG_MAX + 5):
        table.record(run(ProducerId(number.to_bytes(16)), 0, 1), Offset(number * 100))
    assert len(table) == PRODUCERS_PER_LOG_MAX
    assert table.next_sequence(ProducerId((4).to_bytes(16))) == 0
    assert table.next_sequence(ProducerId((5).to_bytes(16))) == 1
    for number in range(RECENT_BATCHES_COUNT + 1):
        table.record(run(ALICE, number, 1), Offset(number * 100))
    verdict = table.check(run(ALICE, 0, 1))
    assert isinstance(verdict, Refused)
    assert verdict.status == Status.RECEIPT_FORGOTTEN
    assert table.check(run(ALICE, 1, 1)) == Duplicate(Offset(100), 0)


def requests(*numbers: int) -> list[bytes]:
    return [encode_opaque(number.to_bytes(32), b"x") for number in numbers]


def check(table: ProducerSequences, *numbers: int) -> Fresh | Repeated | Refused:
    return table.check_requests(scan(b"".join(requests(*numbers))).requests)


def test_version_1_records_are_known_by_their_ids_below_a_cut_and_after_a_restart() -> None:
    table = ProducerSequences()
    size = len(requests(1)[0])
    for number in (1, 2, 3):
        table.note(scan(requests(number)[0]), Offset(size * number))
    for one in (table, ProducerSequences.load(table.dump(), table.dump_requests())):
        one.check_invariants()
        assert check(one, 2) == Repeated(Offset(2 * size), Offset(2 * size))
        assert check(one, 2, 3) == Repeated(Offset(2 * size), Offset(3 * size))
        assert check(one, 4) == Fresh()
        cut = one.before(Offset(2 * size))
        assert check(cut, 2) == Fresh()
        assert isinstance(check(cut, 1), Repeated)


def test_the_oldest_version_1_records_are_forgotten_first() -> None:
    table = ProducerSequences()
    numbers = range(1, REQUEST_IDS_PER_LOG_MAX + 2)
    table.note(scan(b"".join(requests(*numbers))), Offset(0))
    table.check_invariants()
    assert check(table, 1) == Fresh()
    assert isinstance(check(table, 2), Repeated)


def test_a_table_that_was_in_order_is_checked_again_after_each_change() -> None:
    one = requests(1)[0]

    def table() -> ProducerSequences:
        table = ProducerSequences()
        table.record(run(ALICE, 0, 1), Offset(100))
        table.record(run(ALICE, 1, 1), Offset(200))
        table.note(scan(one), Offset(300))
        table.check_invariants()
        table.check_invariants()
        return table

    placed_before_others, repeated, requested_before_others = table(), table(), table()
    placed_before_others.record(run(ALICE, 2, 1), Offset(150))
    repeated.record(run(ALICE, 1, 1), Offset(400))
    requested_before_others.note(scan(requests(2)[0]), Offset(250))
    cut = table()
    cut._producers[ALICE].batches.append((1, Offset(180)))  # only what follows is a change
    cut.forget(Offset(250))
    for broken in (placed_before_others, repeated, requested_before_others, cut):
        with pytest.raises(AssertionError):
            broken.check_invariants()


class AgainstTheLog(RuleBasedStateMachine):
    """Producers send batches, repeat and skip; the truth is a plain list of records."""

    @initialize()
    def begin(self) -> None:
        self.table = ProducerSequences()
        self.log = b""
        self.sent: dict[tuple[ProducerId, int], list[tuple[int, int, int]]] = {}
        self.epochs = {ALICE: 0, BOB: 0}

    def batch(self, producer: ProducerId, first: int, count: int) -> bytes:
        builder = BatchBuilder()
        for number in range(count):
            builder.add(b"v" * (number % 5))
        return builder.encode(producer, ProducerEpoch(self.epochs[producer]), Sequence(first))

    @rule(producer=st.sampled_from([ALICE, BOB]), count=st.integers(1, 4))
    def send_next(self, producer: ProducerId, count: int) -> None:
        sent = self.sent.setdefault((producer, self.epochs[producer]), [])
        first = sent[-1][0] + sent[-1][1] if sent else 0
        data = self.batch(producer, first, count)
        (found,) = scan(data).runs
        assert self.table.check(found) == Fresh()
        self.table.record(found, Offset(len(self.log)))
        sent.append((first, count, len(self.log)))
        self.log += data

    @rule(producer=st.sampled_from([ALICE, BOB]), choice=st.randoms(use_true_random=False))
    def repeat(self, producer: ProducerId, choice: object) -> None:
        sent = self.sent.get((producer, self.epochs[producer]))
        if sent:
            first, count, offset = choice.choice(sent)  # type: ignore[attr-defined]
            verdict = self.table.check(run(producer, first, count, self.epochs[producer]))
            assert isinstance(verdict, Duplicate)
            assert self.skip(verdict.offset, verdict.skip) == offset

    @rule(producer=st.sampled_from([ALICE, BOB]))
    def skip_one(self, producer: ProducerId) -> None:
        following = self.table.next_sequence(producer)
        verdict = self.table.check(run(producer, following + 1, 1, self.epochs[producer]))
        assert isinstance(verdict, Refused)

    @rule(producer=st.sampled_from([ALICE, BOB]))
    @precondition(lambda self: any(self.sent.values()))
    def begin_another_life(self, producer: ProducerId) -> None:
        self.epochs[producer] += 1

    @rule()
    def restart_from_a_checkpoint(self) -> None:
        self.table = ProducerSequences.load(self.table.dump())

    @rule()
    def rebuild_by_scanning(self) -> None:
        self.table = ProducerSequences()
        for found in scan(self.log).runs:
            self.table.record(found, Offset(found.start))

    def skip(self, offset: int, count: int) -> int:
        for _ in range(count):
            offset = record_end(self.log, offset)
        return offset

    @invariant()
    def holds(self) -> None:
        self.table.check_invariants()


TestAgainstTheLog = AgainstTheLog.TestCase


class Counted(dict[bytes, Offset]):
    """Requests by their ids, which counts how often somebody looks for the first one."""

    looks = 0

    def __iter__(self) -> Iterator[bytes]:
        self.looks += 1
        return super().__iter__()


def test_of_thousands_of_requests_the_oldest_are_forgotten_in_one_pass() -> None:
    """One by one each look for the first one skipped all that had been removed before it: two
    seconds for four megabytes of the smallest records."""
    table = ProducerSequences()
    table._requests = requests = Counted()
    one = encode_opaque(b"r" * 32, b"")
    ids = [number.to_bytes(32, "big") for number in range(1, 3 * REQUEST_IDS_PER_LOG_MAX)]
    for at in (0, len(ids) // 2):
        some = ids[at : at + len(ids) // 2]
        found = scan(b"".join(encode_opaque(request_id, b"") for request_id in some))
        table.note(found, Offset(at * len(one)))
    assert requests.looks <= 2
    assert [*requests][-1] == some[-1]
    assert len(requests) == REQUEST_IDS_PER_LOG_MAX
    table.check_invariants()
