"""Look-ups in a large log read a bounded number of bytes in one slice."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import trio

from octopi.errors import (
    CorruptLogError,
    NeedsTimeError,
    OffsetInsideRecordError,
    OffsetOutOfRangeError,
    StorageError,
)
from octopi.identifiers import Offset
from octopi.limits import INDEX_INTERVAL_BYTES, KIB, MIB, SLICE_BYTES
from octopi.simulation.kernel.turn_meter import TurnMeter, counted
from octopi.storage.log_options import LogOptions
from octopi.storage.offset_index import ENTRY_BYTES, IndexEntry
from octopi.storage.record_file import RecordFile
from octopi.storage.segment import Segment
from octopi.storage.segmented_log import SegmentedLog
from octopi.storage.time_slices import (
    GROUP_COUNT,
    QUICK_SLICES,
    Slices,
    at_once,
    in_groups,
    in_turns,
)
from tests.kit.disk import MemoryDisk
from tests.storage.building import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    empty_disk,
    findings,
    open_log,
    path,
)

VALUE = b"v" * 443
RECORD_BYTES = len(batch(VALUE))
BATCH_COUNT = 1000
OPTIONS = LogOptions(segment_bytes_max=4 * MIB, retention_ms=10**9)
TURN_BYTES_MAX = 4 * SLICE_BYTES
"""A slice and what begins the next one: a walk up to an entry, and the index."""


class Large:
    """Segments of 4 MiB, of small records with time stamps from 0 on."""

    def __init__(self) -> None:
        self.disk = empty_disk()
        self.turns = TurnMeter()
        log = open_log(self.disk, OPTIONS)
        first = 0
        while first < 28 * BATCH_COUNT:
            values = [VALUE] * BATCH_COUNT
            append(log, batch(*values, timestamp_ms=first, sequence=first))
            first += BATCH_COUNT
        self.end, self.count = log.end, first
        log.close()
        self.disk.settle()
        self.bases = [
            int(name.split(".")[0])
            for name in self.disk.list_directory(DIRECTORY)
            if name.endswith(".log")
        ]

    def open(self) -> SegmentedLog:
        log = open_log(counted(self.disk, self.turns), OPTIONS, recovery_point=self.end)
        self.turns.forget()
        return log


def harm_nothing(disk: MemoryDisk) -> None:
    pass


def remove_indexes(disk: MemoryDisk) -> None:
    for name in disk.list_directory(DIRECTORY):
        if name.endswith(".index"):
            disk.remove(f"{DIRECTORY}/{name}")


def break_indexes(disk: MemoryDisk) -> None:
    disk.fail(errno.EIO, "pread", path_end=".index", times=10**9)


def flip_indexes(disk: MemoryDisk) -> None:
    for name in disk.list_directory(DIRECTORY):
        if name.endswith(".index"):
            file = f"{DIRECTORY}/{name}"
            disk.plant(file, bytes(byte ^ 1 for byte in disk.content(file)))


HARMS = [harm_nothing, remove_indexes, break_indexes, flip_indexes]


def ask_last(large: Large, log: SegmentedLog) -> tuple[Slices[Offset], int]:
    back = large.count - 3 * BATCH_COUNT
    return log.search.last(back, log.end), large.end - back * RECORD_BYTES


def ask_last_of_all(large: Large, log: SegmentedLog) -> tuple[Slices[Offset], int]:
    return log.search.last(10**9, log.end), 0


def ask_timestamp(large: Large, log: SegmentedLog) -> tuple[Slices[Offset], int]:
    return log.search.timestamp(large.count - 2500, log.end), large.end - 2500 * RECORD_BYTES


def ask_boundary(large: Large, log: SegmentedLog) -> tuple[Slices[Offset], int]:
    return log.search.boundary(Offset(large.end - 2 * MIB), log.end), (
        (large.end - 2 * MIB) // RECORD_BYTES * RECORD_BYTES
    )


def ask_count_on(large: Large, log: SegmentedLog) -> tuple[Slices[Offset], int]:
    return log.search.count_on(Offset(RECORD_BYTES), 4000), 4001 * RECORD_BYTES


QUESTIONS = [ask_last, ask_last_of_all, ask_timestamp, ask_boundary, ask_count_on]


@pytest.fixture(scope="module")
def stored() -> Large:
    return Large()


@pytest.fixture
def large(stored: Large) -> Large:
    """The same bytes each time."""
    fresh = Large.__new__(Large)
    fresh.__dict__.update(stored.__dict__)
    fresh.disk, fresh.turns = empty_disk(), TurnMeter()
    fresh.disk.make_directory(DIRECTORY)
    for name in stored.disk.list_directory(DIRECTORY):
        fresh.disk.plant(f"{DIRECTORY}/{name}", stored.disk.content(f"{DIRECTORY}/{name}"))
    fresh.disk.settle()
    return fresh


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("ask", QUESTIONS)
async def test_no_look_up_reads_much_in_one_slice(
    large: Large,
    harm: Callable[[MemoryDisk], None],
    ask: Callable[[Large, SegmentedLog], tuple[Slices[Offset], int]],
) -> None:
    log = large.open()
    harm(large.disk)
    question, answer = ask(large, log)
    assert await in_turns(question) == answer
    assert large.turns.bytes_max <= TURN_BYTES_MAX


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("known_share", [0.0, 0.4])
async def test_opening_a_log_reads_little_in_one_slice(
    large: Large, harm: Callable[[MemoryDisk], None], known_share: float
) -> None:
    harm(large.disk)
    known = int(large.count * known_share) * RECORD_BYTES
    work = SegmentedLog.open(
        counted(large.disk, large.turns), DIRECTORY, OPTIONS, recovery_point=Offset(known), now_ms=0
    )
    log, report = await in_turns(work)
    assert (log.end, report.scanned_bytes) == (large.end, large.end - known)
    assert large.turns.bytes_max <= TURN_BYTES_MAX


async def test_opening_a_log_that_is_too_short_reads_little_in_one_slice(large: Large) -> None:
    last = f"{DIRECTORY}/{large.bases[-1]:020d}.log"
    large.disk.plant(last, large.disk.content(last)[:-1])
    work = SegmentedLog.open(
        counted(large.disk, large.turns), DIRECTORY, OPTIONS, recovery_point=large.end, now_ms=0
    )
    log, _ = await in_turns(work)
    assert log.damage is not None
    assert log.end == large.end - RECORD_BYTES
    assert large.turns.bytes_max <= TURN_BYTES_MAX


async def test_an_opening_that_is_given_up_leaves_no_file_open(large: Large) -> None:
    machine = counted(large.disk, large.turns)
    work = SegmentedLog.open(machine, DIRECTORY, OPTIONS, recovery_point=Offset(0), now_ms=0)
    next(work)
    assert large.disk.open_files
    work.close()
    assert not large.disk.open_files


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_look_up_with_a_whole_index_does_not_read_the_records(
    large: Large, ask: Callable[[Large, SegmentedLog], tuple[Slices[Offset], int]]
) -> None:
    log = large.open()
    question, answer = ask(large, log)
    assert at_once(question) == answer
    # All of it counts as one turn here.
    assert large.turns.bytes_max < 6 * log.segment_count * INDEX_INTERVAL_BYTES < large.end / 6


async def test_counting_reads_little_and_nothing_of_a_closed_segment_the_next_time(
    large: Large,
) -> None:
    log = large.open()
    assert await in_turns(log.search.count(log.end)) == (0, large.count)
    assert 0 < large.turns.bytes_max <= TURN_BYTES_MAX
    large.turns.forget()
    assert at_once(log.search.count(log.end)) == (0, large.count)
    assert large.turns.bytes_max == 0
    before_the_last = Offset(large.end - RECORD_BYTES)
    assert at_once(log.search.count(before_the_last)) == (0, large.count - 1)
    assert 0 < large.turns.bytes_max <= TURN_BYTES_MAX


@pytest.mark.parametrize("harm", [remove_indexes, flip_indexes])
async def test_a_count_for_which_an_index_has_to_be_rebuilt_is_not_known_until_it_is(
    large: Large, harm: Callable[[MemoryDisk], None]
) -> None:
    harm(large.disk)
    log = large.open()
    assert at_once(log.search.count(log.end)) == (0, None)
    assert large.turns.bytes_max <= 2 * (QUICK_SLICES + 2) * SLICE_BYTES  # all of it, as one turn
    assert at_once(log.search.last(10**9, log.end)) == 0  # rebuilds them
    assert at_once(log.search.count(log.end)) == (0, large.count)


def test_records_that_damage_hides_are_not_counted(large: Large) -> None:
    name, hurt_at = path(large.bases[1]), 3 * MIB
    content = large.disk.content(name)
    large.disk.plant(name, content[:hurt_at] + b"?" * 500 + content[hurt_at + 500 :])
    index = path(large.bases[1], "index")
    large.disk.remove(index)
    log = large.open()
    with pytest.raises(CorruptLogError):
        at_once(log.search.last(10**9, log.end))
    first = Offset(large.bases[1])
    assert at_once(log.search.count(log.end)) == (0, None)
    assert at_once(log.search.count(first)) == (0, first // RECORD_BYTES)


def test_a_count_begins_again_if_retention_removes_what_it_has_counted(large: Large) -> None:
    log = large.open()
    counting = log.search.count(log.end)
    while log.segment_count == len(large.bases):
        next(counting)
        next(counting)
        log.apply_retention(10**10, below=Offset(large.bases[1]))
    kept = (large.end - large.bases[1]) // RECORD_BYTES
    assert at_once(counting) == (large.bases[1], kept)


def test_a_count_goes_to_the_end_of_a_log_that_is_cut_meanwhile(large: Large) -> None:
    log = large.open()
    counting = log.search.count(log.end)
    next(counting)
    log.truncate(Offset(large.bases[-2]))
    assert at_once(counting) == (0, large.bases[-2] // RECORD_BYTES)


async def test_a_read_that_needs_a_new_index_checks_its_offset_in_slices(large: Large) -> None:
    log = large.open()
    remove_indexes(large.disk)
    offset = Offset(large.end - BATCH_COUNT * RECORD_BYTES - 2 * MIB // RECORD_BYTES * RECORD_BYTES)
    with pytest.raises(NeedsTimeError):
        log.read(offset, 1, log.end)
    assert large.turns.bytes_max <= 2 * MIB
    large.turns.forget()
    await in_turns(log.prove(offset))
    assert log.read(offset, 1, log.end) == batch(
        VALUE, timestamp_ms=offset // RECORD_BYTES, sequence=offset // RECORD_BYTES
    )
    assert large.turns.bytes_max <= TURN_BYTES_MAX
    await in_turns(log.prove(offset))
    await in_turns(log.prove(log.end))
    with pytest.raises(OffsetInsideRecordError):
        await in_turns(log.prove(Offset(offset + 1)))


@pytest.mark.parametrize("value_bytes", [200 * KIB, 999 * KIB])
async def test_a_read_that_needs_the_index_of_large_records_reads_few_of_them(
    value_bytes: int,
) -> None:
    disk, turns = empty_disk(), TurnMeter()
    options = LogOptions(segment_bytes_max=8 * MIB)
    log, record_bytes = open_log(disk, options), len(batch(bytes(value_bytes)))
    for number in range(20 * MIB // value_bytes):
        append(log, batch(bytes(value_bytes), sequence=number))
    end = log.end
    log.close()
    remove_indexes(disk)
    log = open_log(counted(disk, turns), options, recovery_point=end)
    turns.forget()
    last_of_the_first_segment = Offset((8 * MIB // record_bytes - 1) * record_bytes)
    with pytest.raises(NeedsTimeError):
        log.read(last_of_the_first_segment, 1, log.end)
    assert turns.bytes_max <= (QUICK_SLICES + 2) * SLICE_BYTES + record_bytes


async def test_a_truncation_to_a_checked_offset_is_quick(large: Large) -> None:
    log = large.open()
    remove_indexes(large.disk)
    end = Offset(large.end - 700 * RECORD_BYTES)
    await in_turns(log.prove(end))
    log.truncate(end)
    assert large.turns.bytes_max <= TURN_BYTES_MAX
    append(log, batch(VALUE, timestamp_ms=7, sequence=7))
    assert await in_turns(log.search.last(2, log.end)) == end - RECORD_BYTES
    assert await in_turns(log.search.last(large.count, log.end)) == 0


async def test_the_ages_of_old_segments_are_learnt_in_slices(large: Large) -> None:
    log = large.open()
    remove_indexes(large.disk)
    await in_turns(log.retention.learn_ages(NOW_MS))
    retained = log.apply_retention(NOW_MS, below=log.end)
    assert retained.segment_count == 3
    assert large.turns.bytes_max <= TURN_BYTES_MAX


async def test_retention_does_not_wait_for_ages_that_can_not_be_read(large: Large) -> None:
    log = large.open()
    large.disk.fail(errno.EIO, "pread", path_end=".log")
    await in_turns(log.retention.learn_ages(NOW_MS))
    large.disk.fail(errno.EIO, "pread", path_end=".log")
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0


@pytest.mark.parametrize("retention_ms", [None, 10**14])
async def test_the_ages_of_segments_are_not_computed_without_a_need(
    large: Large, retention_ms: int | None
) -> None:
    options = LogOptions(segment_bytes_max=4 * MIB, retention_ms=retention_ms)
    log = open_log(counted(large.disk, large.turns), options, recovery_point=large.end)
    large.turns.forget()
    await in_turns(log.retention.learn_ages(NOW_MS))
    assert large.turns.bytes_max <= (0 if retention_ms is None else TURN_BYTES_MAX)
    assert log.apply_retention(NOW_MS, below=log.end).segment_count == 0


async def test_segments_written_since_the_start_have_known_ages() -> None:
    log = open_log(empty_disk(), LogOptions(segment_bytes_max=400, retention_ms=1000))
    append(log, *(batch(bytes(300), sequence=n) for n in range(3)))
    await in_turns(log.retention.learn_ages(NOW_MS + 2000))
    assert log.apply_retention(NOW_MS + 2000, below=log.end).segment_count == 0
    await log.flush()
    await in_turns(log.retention.learn_ages(NOW_MS + 2000))
    assert log.apply_retention(NOW_MS + 2000, below=log.end).segment_count == 2


async def test_an_index_that_is_made_anew_has_the_records_appended_meanwhile(large: Large) -> None:
    log = large.open()
    flip_indexes(large.disk)
    question = log.search.last(1000, log.end)
    for _ in range(3):
        next(question)
    append(log, batch(VALUE, sequence=1))
    end = log.end
    assert at_once(question) == large.end - 1000 * RECORD_BYTES
    append(log, *(batch(b"w" * 100 * KIB, sequence=n) for n in range(9)))
    assert log.find_last(10, log.end) == large.end
    assert log.find_last(9, log.end) == end
    assert log.find_last(10**9, log.end) == 0


def test_an_index_is_begun_again_when_records_are_cut_meanwhile(large: Large) -> None:
    log = large.open()
    index = f"{DIRECTORY}/{large.bases[-1]:020d}.index"
    large.disk.flip(index, 8 * (ENTRY_BYTES + 5))
    early = large.bases[-1] + 200 * RECORD_BYTES
    question = log.search.boundary(Offset(early + 1), log.end)
    for _ in range(3):
        next(question)
    end = Offset(large.end - 500 * RECORD_BYTES)
    log.truncate(end)  # which needs another part of the index
    assert at_once(question) == early
    assert log.find_last(1500, log.end) == end - 1500 * RECORD_BYTES
    assert findings(large.disk) == []


@pytest.mark.parametrize("ask", [ask_last, ask_timestamp])
def test_look_ups_at_the_same_time_make_one_index(
    large: Large, ask: Callable[[Large, SegmentedLog], tuple[Slices[Offset], int]]
) -> None:
    log = large.open()
    remove_indexes(large.disk)
    questions = [ask(large, log)[0] for _ in range(3)]
    found: list[Offset] = []
    while questions:
        for question in list(questions):
            try:
                next(question)
            except StopIteration as done:
                found.append(done.value)
                questions.remove(question)
    assert found == [ask(large, log)[1]] * 3


def test_a_look_up_goes_on_when_retention_removes_the_segment_that_it_reads(large: Large) -> None:
    remove_indexes(large.disk)
    log = large.open()
    slice_count = sum(1 for _ in log.search.last(10**9, log.end))
    remove_indexes(large.disk)
    log = large.open()
    questions = [
        (log.search.last(10**9, log.end), None),
        (log.search.timestamp(1, log.end), None),
        (log.search.boundary(Offset(3 * MIB), log.end), None),
        (log.search.count_on(Offset(0), 5000), OffsetOutOfRangeError),
        (log.prove(Offset(6000 * RECORD_BYTES)), StorageError),
    ]
    last_segment = questions[0][0]
    for _ in range(slice_count - 5):  # then it looks at the first segment
        next(last_segment)
    for question, _ in questions[1:]:
        next(question)
    log.apply_retention(NOW_MS + 10**10, below=log.end)
    for question, error in questions:
        if error is None:
            assert at_once(question) == log.start
        else:
            with pytest.raises(error):
                at_once(question)


def test_a_look_up_of_a_removed_offset_is_refused(large: Large) -> None:
    log = large.open()
    log.apply_retention(NOW_MS + 10**10, below=log.end)
    with pytest.raises(OffsetOutOfRangeError, match="is gone"):
        at_once(log.search.count_on(Offset(0), 1))


def test_a_look_up_ends_when_the_log_is_closed(large: Large) -> None:
    log = large.open()
    remove_indexes(large.disk)
    question = log.search.last(10**9, log.end)
    next(question)
    log.close()
    with pytest.raises(StorageError, match="is closed"):
        next(question)


async def test_a_cancelled_look_up_does_nothing_more(large: Large) -> None:
    log = large.open()
    remove_indexes(large.disk)
    question = log.search.last(10**9, log.end)
    with trio.CancelScope() as scope:
        scope.cancel()
        await in_turns(question)
    assert scope.cancelled_caught
    assert next(question, None) is None


def test_records_behind_damage_are_counted_as_far_as_they_are_known(large: Large) -> None:
    log = large.open()
    first = path(0)
    data = bytearray(large.disk.content(first))
    data[2000 * RECORD_BYTES + 100] ^= 1
    large.disk.plant(first, bytes(data))
    remove_indexes(large.disk)
    assert log.find_boundary(Offset(3 * MIB), log.end) == 3 * MIB // RECORD_BYTES * RECORD_BYTES
    segment_end = large.bases[1]
    assert log.find_last(10, Offset(segment_end)) == segment_end - 10 * RECORD_BYTES
    assert log.find_last(2000, Offset(segment_end)) == segment_end - 2000 * RECORD_BYTES
    assert at_once(log.search.count_on(Offset(5000 * RECORD_BYTES), 700)) == 5700 * RECORD_BYTES


def test_an_age_read_from_a_segment_that_is_cut_meanwhile_is_dropped(large: Large) -> None:
    remove_indexes(large.disk)
    segment = Segment.existing(large.disk, DIRECTORY, Offset(0))
    work = segment.learn()
    for _ in range(3):
        next(work)
    segment.truncate(0)
    at_once(work)
    assert segment.newest_timestamp_ms() == -1


def test_a_look_up_in_a_segment_that_was_cut_off_is_refused(large: Large) -> None:
    log = large.open()
    index = f"{DIRECTORY}/{large.bases[-1]:020d}.index"
    large.disk.flip(index, 8 * (ENTRY_BYTES + 5))
    question = log.search.count_on(Offset(large.bases[-1] + 200 * RECORD_BYTES), 100)
    for _ in range(3):
        next(question)
    log.truncate(Offset(large.bases[-1] - RECORD_BYTES))
    with pytest.raises(StorageError, match="was removed"):
        at_once(question)


def test_an_index_whose_counts_contradict_its_records_is_noticed(large: Large) -> None:
    name = path(0, "index")
    data = large.disk.content(name)
    entries = [
        IndexEntry.of_bytes(data[at : at + ENTRY_BYTES]) for at in range(0, len(data), ENTRY_BYTES)
    ]
    for number in (20, 21):
        entries[number] = entries[number]._replace(count_before=entries[number].count_before + 1)
    large.disk.plant(name, b"".join(one.to_bytes() for one in entries))
    log = large.open()
    wanted = entries[20].position // RECORD_BYTES
    assert at_once(log.search.count_on(Offset(0), wanted - 2)) == (wanted - 2) * RECORD_BYTES
    assert findings(large.disk) == []


def test_counting_past_the_last_record_is_refused_as_damage(large: Large) -> None:
    log = large.open()
    with pytest.raises(CorruptLogError, match="records don't follow"):
        at_once(log.search.count_on(Offset(0), 10**6))


@pytest.mark.parametrize("harm", [remove_indexes, break_indexes])
@pytest.mark.parametrize("length", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x00", b"\x00\x00\x09\x00"])
async def test_forged_record_lengths_are_noticed_in_slices(
    large: Large, harm: Callable[[MemoryDisk], None], length: bytes
) -> None:
    data = bytearray(large.disk.content(path(0)))
    data[2000 * RECORD_BYTES : 2000 * RECORD_BYTES + 4] = length
    large.disk.plant(path(0), bytes(data))
    log = large.open()
    harm(large.disk)
    for question in (
        log.search.count_on(Offset(RECORD_BYTES), 5000),
        log.search.last(7000, Offset(large.bases[1])),
    ):
        with pytest.raises(CorruptLogError) as caught:
            await in_turns(question)
        assert caught.value.position_bytes == 2000 * RECORD_BYTES
    assert large.turns.bytes_max <= TURN_BYTES_MAX


@pytest.mark.parametrize("bit", [0, 26, 28])
def test_a_walk_over_a_segment_reports_damage_at_its_position(large: Large, bit: int) -> None:
    file = RecordFile.existing(large.disk, DIRECTORY, Offset(0))
    large.disk.flip(path(0), 8 * 5 * RECORD_BYTES + bit)  # of a length
    with pytest.raises(CorruptLogError) as caught:
        list(file.record_ends(0, file.size_bytes))
    assert caught.value.position_bytes == 5 * RECORD_BYTES


@pytest.mark.parametrize("piece_bytes", [1, RECORD_BYTES - 1, RECORD_BYTES + 1])
def test_a_scan_in_pieces_smaller_than_a_record_finds_each_record(
    piece_bytes: int,
) -> None:
    disk = empty_disk()
    log = open_log(disk)
    append(log, batch(*[VALUE] * 3))
    log.close()
    chunks = list(RecordFile.existing(disk, DIRECTORY, Offset(0)).scan(0, piece_bytes))
    assert [chunk.position for chunk in chunks] == [0, RECORD_BYTES, 2 * RECORD_BYTES]
    assert [chunk.fault for chunk in chunks] == [None] * 3
    assert all(chunk.read_bytes >= RECORD_BYTES for chunk in chunks)


class _Waits:
    """A turn that may begin at every second attempt only."""

    is_over = False
    useless_count = 0

    def __init__(self) -> None:
        self.log: list[str] = []

    def begin(self) -> bool:
        self.log.append("begin")
        return self.log.count("begin") % 2 == 0

    async def wait(self) -> None:
        await trio.lowlevel.checkpoint()
        self.log.append("wait")

    def look(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self.log.append("end")

    async def give_way(self) -> None:
        raise NotImplementedError


async def test_each_slice_of_work_is_a_turn_that_may_have_to_wait() -> None:
    def work() -> Slices[str]:
        yield
        yield
        return "done"

    turn = _Waits()
    assert await in_turns(work(), turn) == "done"
    assert turn.log == ["begin", "wait", "end", "begin", "end", "begin", "wait", "end"]


def test_items_are_dealt_into_bounded_groups_and_none_is_left_out() -> None:
    items = list(range(2 * GROUP_COUNT + 1))
    groups = list(in_groups(items))
    assert [len(one) for one in groups] == [GROUP_COUNT, GROUP_COUNT, 1]
    assert [one for group in groups for one in group] == items
