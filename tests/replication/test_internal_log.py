"""An internal log: entries keep their form, the newest one counts, and a snapshot says it all."""

from collections.abc import Sequence
from typing import Any

import cbor2
import pytest
from hypothesis import given, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from octopi.errors import Status
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence as SequenceNumber,
    is_internal,
    topic_name_fault,
)
from octopi.limits import (
    INTERNAL_KEY_BYTES_MAX,
    INTERNAL_VALUE_BYTES_MAX,
    SNAPSHOT_BYTES_MIN,
    SNAPSHOT_FACTOR,
)
from octopi.record import BatchBuilder, encode_opaque, scan
from octopi.replication.effects import Append, CommitReceipt, Refusal, Reply
from octopi.replication.internal_log import (
    DamagedEntryError,
    EncodedEntry,
    Fold,
    Snapshot,
    SnapshotFinder,
    Value,
    begin_entry,
    decode_records,
    encode,
    encode_records,
    end_entry,
    internal_log,
    next_records,
    outdated_end,
    snapshot_due_at,
)
from octopi.replication.log_leader import LogLeader
from octopi.replication.log_state import LogState
from octopi.replication.producer_sequences import producer_of

NAME = SUBSCRIPTIONS_LOG
PARTITION = PartitionId(3)
START = Offset(0)

values = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=5,
    ),
    max_size=5,
)
keys = st.builds("{}/{}".format, st.sampled_from("smak"), st.text(min_size=1, max_size=20))


def records_of(*entries: EncodedEntry, epoch: int = 1, first: int = 0) -> bytes:
    return encode_records(NAME, entries, Epoch(epoch), SequenceNumber(first), 1_000)


def entry(key: str, value: Value | None) -> EncodedEntry:
    return encode(NAME, key, value)


def fold_of(records: bytes, start: Offset = START) -> Fold:
    fold = Fold(NAME, PARTITION, start)
    fold.read(records)
    return fold


# --- the form of an entry ----------------------------------------------------------------


@given(
    entries=st.lists(st.tuples(keys, st.none() | values), max_size=8),
    epoch=st.integers(1, 2**32 - 1),
    base=st.integers(0, 2**50),
)
def test_an_entry_is_the_same_after_encoding_and_decoding(
    entries: list[tuple[str, dict[str, Any] | None]], epoch: int, base: int
) -> None:
    encoded = [entry(key, value) for key, value in entries]
    records = records_of(*encoded, epoch=epoch, first=7)
    read = decode_records(NAME, PARTITION, records, Offset(base))
    assert [(one.key, one.value) for one in read] == entries
    assert [one.encoded for one in read] == encoded
    assert {one.epoch for one in read} <= {epoch}
    ends = [Offset(base), *(one.end for one in read)]
    assert ends[:-1] == [one.offset for one in read]
    assert ends[-1] == base + len(records)


def test_the_records_of_an_internal_log_are_of_one_producer_that_counts_in_each_epoch() -> None:
    records = records_of(entry("s/1", {}), entry("s/2", None), epoch=9, first=5)
    (run,) = scan(records).runs
    assert run.producer_id == b"~subscriptions\0\0"
    assert (run.producer_epoch, run.first_sequence, run.count) == (9, 5, 2)


def test_an_internal_log_is_no_topic() -> None:
    log = internal_log(NAME, PARTITION)
    assert (log.topic, log.topic_id, log.partitions) == (NAME, NAME, [PARTITION])
    assert topic_name_fault(log.topic)
    assert is_internal(log.topic_id)
    assert not is_internal("orders")
    assert (log.options.retention_ms, log.options.retention_bytes) == (None, None)
    assert log.options.segment_bytes == 1 << 20


@pytest.mark.parametrize("key", ["", "s", "s/", "/1", "t/1", "x/other", "x/", "S/1", "sm/1"])
def test_an_internal_log_has_only_keys_of_its_kinds(key: str) -> None:
    with pytest.raises(ValueError, match="no keys like that"):
        entry(key, {})


def test_keys_and_values_are_bounded() -> None:
    entry("s/" + "k" * (INTERNAL_KEY_BYTES_MAX - 2), {})
    with pytest.raises(ValueError, match=r"a key has at most 1024 bytes, and this one has 1025"):
        entry("s/" + "k" * (INTERNAL_KEY_BYTES_MAX - 1), {})
    entry("s/1", {"": b"v" * (INTERNAL_VALUE_BYTES_MAX - 7)})
    with pytest.raises(ValueError, match=r"a value has at most 1048576 bytes, and this one has"):
        entry("s/1", {"": b"v" * (INTERNAL_VALUE_BYTES_MAX - 6)})


def test_a_value_is_a_map_from_texts_to_what_cbor_has_a_form_for() -> None:
    not_texts: dict[Any, int] = {1: 2}
    with pytest.raises(ValueError, match="are texts"):
        entry("s/1", not_texts)
    with pytest.raises(ValueError, match="CBOR has no form"):
        entry("s/1", {"odd": object()})


def damaged(value: bytes, key: bytes | None = b"s/1", headers: Any = None) -> bytes:  # noqa: ANN401
    batch = BatchBuilder()
    batch.add(value, key, headers or {})
    return batch.encode(producer_of(NAME), ProducerEpoch(1), SequenceNumber(1))


@pytest.mark.parametrize(
    ("records", "why"),
    [
        (damaged(b"\xa0", key=None), "no keys like that"),
        (damaged(b"\xa0", key=b"q/1"), "no keys like that"),
        (damaged(b"\xa0", key=b"s/\xff"), "no text"),
        (damaged(b"\xa0", headers={"h": b""}), "another form"),
        (damaged(b"\xff"), "no CBOR"),
        (damaged(b"\xa1"), "no CBOR"),
        (damaged(b"\x80"), "deterministic"),
        (damaged(b"\xa0\x00"), "deterministic"),
        (damaged(b"\xa1\x01\x02"), "deterministic"),
        (damaged(b"\xa1\x61a\x18\x01"), "deterministic"),
        (damaged(cbor2.dumps({"b": 1, "a": 2})), "deterministic"),
        (damaged(b"\x81" * 100_000), "no CBOR"),
        (encode_opaque(bytes(32), b"of version 1"), "another producer"),
        (
            BatchBuilder().encode(producer_of(NAME), ProducerEpoch(1), SequenceNumber(0))
            + records_of(entry("s/1", {})).replace(b"~subscriptions", b"~subscriptionz"),
            "checksum",
        ),
    ],
)
def test_an_entry_that_no_program_of_this_version_writes_is_named(records: bytes, why: str) -> None:
    good = records_of(entry("s/0", {"a": 1}))
    fold = fold_of(good)
    with pytest.raises(DamagedEntryError, match=why) as caught:
        fold.read(records)
    assert caught.value.offset == len(good)
    assert "octopi-node verify" in str(caught.value)
    assert f"partition {PARTITION}" in str(caught.value)
    assert (fold.end, fold.values) == (len(good), {"s/0": {"a": 1}}), "nothing of it counts"
    fold.read(records_of(entry("s/1", {"b": 2}), first=1))
    assert fold.values == {"s/0": {"a": 1}, "s/1": {"b": 2}}, "the log goes on"


@pytest.mark.parametrize("other", [b"b" * 16, producer_of(NAME)[:-1] + b"1"])
def test_records_of_a_client_are_no_entries(other: bytes) -> None:
    batch = BatchBuilder()
    batch.add(b"\xa0", b"s/1")
    records = batch.encode(ProducerId(other), ProducerEpoch(1), SequenceNumber(0))
    with pytest.raises(DamagedEntryError, match="another producer"):
        fold_of(records)


# --- appending as a leader ---------------------------------------------------------------


def append(leader: LogLeader, records: bytes) -> CommitReceipt | Refusal:
    """What *leader* answers to *records*, which it appends if it may."""
    answers: list[CommitReceipt | Refusal] = []
    found = scan(records)
    for effect in leader.receive(records, found, answers.append):
        match effect:
            case Append():
                for reply in leader.appended(leader.log.end, found, answers.append):
                    if isinstance(reply, Reply):
                        reply.answer(reply.content)
            case Reply(answer, content):
                answer(content)
    return answers[0]


def test_sequences_begin_anew_in_each_epoch_and_a_deposed_leader_is_refused() -> None:
    log = LogState.empty()
    old, new = LogLeader(Epoch(4), log), LogLeader(Epoch(5), log)
    for leader in (old, old, new, new):
        records = next_records(NAME, leader, [entry("s/1", {}), entry("s/2", {})], 0)
        assert isinstance(append(leader, records), CommitReceipt)
    late = encode_records(NAME, [entry("s/1", {})], Epoch(4), SequenceNumber(4), 0)
    answer = append(old, late)
    assert isinstance(answer, Refusal)
    assert answer.status == Status.PRODUCER_FENCED


# --- what a log says as a whole ----------------------------------------------------------


def test_the_newest_entry_of_a_key_counts() -> None:
    fold = fold_of(
        records_of(
            entry("s/1", {"n": 1}),
            entry("k/1", {"n": 2}),
            entry("s/1", {"n": 3}),
            entry("k/1", None),
        )
    )
    assert fold.values == {"s/1": {"n": 3}}
    assert fold.live_bytes == len(records_of(entry("s/1", {"n": 3})))
    fold.read(records_of(entry("s/1", None), entry("m/1", None), first=4))
    assert (fold.values, fold.live_bytes) == ({}, 0)


@given(
    live=st.integers(0, 10 * SNAPSHOT_BYTES_MIN), begin=st.integers(0, 2**40), more=st.integers(0)
)
def test_a_snapshot_is_due_when_the_log_behind_the_last_one_is_long(
    live: int, begin: int, more: int
) -> None:
    due = snapshot_due_at(Offset(begin), live)
    longest = max(SNAPSHOT_BYTES_MIN, SNAPSHOT_FACTOR * live)
    assert due - 1 - begin == longest, "longer than that, and not earlier"
    assert snapshot_due_at(Offset(begin + more), live) - due == more


def test_the_next_snapshot_is_due_a_while_after_the_last_one() -> None:
    records = records_of(entry("s/1", {}))
    fold = fold_of(records)
    assert fold.snapshot_due_at == snapshot_due_at(START, fold.live_bytes)
    begin = fold.end
    fold.read(records_of(begin_entry(NAME), *fold.live(["s/1"]), end_entry(NAME, begin), first=1))
    assert fold.snapshot == Snapshot(begin, fold.end)
    assert fold.snapshot_due_at == snapshot_due_at(begin, fold.live_bytes)
    assert fold_of(records, Offset(5_000)).snapshot_due_at > snapshot_due_at(START, 0)


def test_an_end_counts_only_with_the_begin_that_it_names_and_in_its_epoch() -> None:
    first = records_of(begin_entry(NAME), epoch=1)
    ends_another = records_of(end_entry(NAME, Offset(1)), epoch=1, first=1)
    of_a_later_epoch = records_of(end_entry(NAME, START), epoch=2)
    says_nothing = records_of(entry("x/end", None), entry("x/end", {}), epoch=2, first=1)
    for more in (ends_another, of_a_later_epoch, says_nothing):
        assert fold_of(first + more).snapshot is None
    assert fold_of(ends_another).snapshot is None, "its begin was removed"
    second = Offset(len(first))
    begun_again = first + records_of(begin_entry(NAME), epoch=1, first=1)
    assert fold_of(begun_again + records_of(end_entry(NAME, START), first=2)).snapshot is None
    whole = begun_again + records_of(end_entry(NAME, second), first=2)
    assert fold_of(whole).snapshot == Snapshot(second, Offset(len(whole)))


def test_a_snapshot_from_which_a_later_leader_cut_a_piece_is_not_whole() -> None:
    kept = records_of(entry("s/1", {}), begin_entry(NAME))
    begin = fold_of(kept).entries["s/1"].end
    piece = records_of(entry("s/1", {}), first=2)
    end = end_entry(NAME, begin)
    assert fold_of(kept + piece + records_of(end, first=3)).snapshot is not None
    led_again = fold_of(kept + records_of(end, epoch=3))
    assert led_again.snapshot is None, "the log from the begin on lacks s/1"


def test_an_older_snapshot_counts_until_the_newer_one_is_whole() -> None:
    log = records_of(begin_entry(NAME), end_entry(NAME, START))
    found = Snapshot(START, Offset(len(log)))
    assert fold_of(log + records_of(begin_entry(NAME), first=2)).snapshot == found


@given(size=st.integers(1, 300), count=st.integers(0, 20))
def test_the_pieces_of_a_snapshot_are_bounded_and_have_every_live_key_once(
    size: int, count: int
) -> None:
    fold = fold_of(records_of(*(entry(f"k/{n}", {"n": n}) for n in range(count))))
    pieces = fold.pieces(size)
    assert [key for piece in pieces for key in piece] == list(fold.entries)
    for piece in pieces:
        assert piece
        assert sum(fold.entries[key].size_bytes for key in piece[:-1]) < size
    for piece in pieces[:-1]:
        assert sum(fold.entries[key].size_bytes for key in piece) >= size


def test_nothing_is_outdated_before_a_snapshot_that_is_committed_and_on_the_device() -> None:
    snapshot = Snapshot(Offset(100), Offset(200))
    assert outdated_end(None, Offset(500), Offset(500)) == 0
    assert outdated_end(snapshot, Offset(199), Offset(200)) == 0
    assert outdated_end(snapshot, Offset(200), Offset(199)) == 0
    assert outdated_end(snapshot, Offset(200), Offset(200)) == 100


class Snapshots(RuleBasedStateMachine):
    """A log as leaders write it, one after the other; each may be deposed within a snapshot, lose
    what isn't committed, and lead again later, with the rest of its old snapshot in hand."""

    @initialize()
    def begin(self) -> None:
        self.log = b""
        self.entries: list[tuple[Offset, str, Value | None]] = []
        """All that was said, without snapshots: where, of which key, and what."""
        self.epoch, self.sequence = 1, 0
        self.committed = Offset(0)
        self.pieces: list[list[str]] | None = None
        self.begun_at = Offset(0)
        self.begun_in = 0
        self.whole: Snapshot | None = None

    def _append(self, *entries: EncodedEntry) -> Offset:
        at = Offset(len(self.log))
        self.log += records_of(*entries, epoch=self.epoch, first=self.sequence)
        self.sequence += len(entries)
        return at

    @property
    def expected(self) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for _, key, value in self.entries:
            found.pop(key, None)
            if value is not None:
                found[key] = value
        return found

    @rule(key=st.sampled_from(["s/1", "s/2", "m/1/2", "k/3/4"]), value=st.none() | values)
    def change(self, key: str, value: Value | None) -> None:
        self.entries.append((self._append(entry(key, value)), key, value))

    @rule()
    def begin_snapshot(self) -> None:
        self.pieces = fold_of(self.log).pieces(1)
        self.begun_at, self.begun_in = self._append(begin_entry(NAME)), self.epoch

    @precondition(lambda self: self.pieces)
    @rule()
    def append_piece(self) -> None:
        assert self.pieces
        live = fold_of(self.log).live(self.pieces.pop(0))
        if live:
            self._append(*live)

    @precondition(lambda self: self.pieces == [])
    @rule()
    def end_snapshot(self) -> None:
        self._append(end_entry(NAME, self.begun_at))
        if self.begun_in == self.epoch:
            self.whole = Snapshot(self.begun_at, Offset(len(self.log)))
        self.pieces = None

    @rule()
    def commit(self) -> None:
        self.committed = Offset(len(self.log))

    @rule(keeps_pieces=st.booleans(), keeps_tail=st.booleans())
    def depose(self, keeps_pieces: bool, keeps_tail: bool) -> None:
        if not keeps_tail:
            self.log = self.log[: self.committed]
            self.entries = [one for one in self.entries if one[0] < self.committed]
            if self.whole is not None and self.whole.end > self.committed:
                self.whole = fold_of(self.log).snapshot
        if not keeps_pieces:
            self.pieces = None
        self.epoch, self.sequence = self.epoch + 1, 0

    @invariant()
    def a_fold_has_what_was_said_last(self) -> None:
        fold = fold_of(self.log)
        assert fold.values == self.expected
        assert fold.live_bytes == sum(one.size_bytes for one in fold.entries.values())
        assert fold.snapshot == self.whole

    @invariant()
    def what_lies_before_a_whole_snapshot_is_not_needed(self) -> None:
        if self.whole is None:
            return
        for read in decode_records(NAME, PARTITION, self.log, START):
            if read.offset <= self.whole.begin:
                rest = fold_of(self.log[read.offset :], read.offset)
                assert rest.values == self.expected
                assert rest.snapshot == self.whole

    @invariant()
    def reading_in_parts_finds_the_same(self) -> None:
        finder, fold = SnapshotFinder(NAME, PARTITION), Fold(NAME, PARTITION)
        for read in decode_records(NAME, PARTITION, self.log, START):
            finder.read(self.log[read.offset : read.end])
            fold.read(self.log[read.offset : read.end])
        assert finder.snapshot == fold.snapshot == self.whole
        assert finder.end == fold.end == len(self.log)
        assert fold.values == self.expected


TestSnapshots = Snapshots.TestCase


def sizes(pieces: Sequence[Sequence[str]]) -> list[int]:
    return [len(piece) for piece in pieces]


def test_a_key_that_is_removed_before_its_piece_is_written_is_left_out() -> None:
    fold = fold_of(records_of(entry("s/1", {}), entry("s/2", {})))
    pieces = fold.pieces(1)
    assert sizes(pieces) == [1, 1]
    fold.read(records_of(entry("s/2", None), first=2))
    assert fold.live(pieces[0]) == [entry("s/1", {})]
    assert fold.live(pieces[1]) == []
