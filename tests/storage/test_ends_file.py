"""The file of ends: what it says of a replica's logs after a crash or a power failure."""

from __future__ import annotations

import errno
from zlib import crc32

import attrs
import pytest
import trio
import trio.testing

from octopi.errors import DiskFullError, StorageError
from octopi.identifiers import Offset
from octopi.storage.ends_file import EndsFile, NotedCheckpoint, NotedLog, StoredEnds, load_ends
from tests.kit.disk import MemoryDisk

PATH = "/data/replicas/0.ends"
ORDERS = {"topic": "orders", "topic_id": "0a"}


def empty_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory("/data/replicas")
    disk.settle()
    return disk


async def begun(disk: MemoryDisk) -> EndsFile:
    """A file that lists one log."""
    file = EndsFile(disk, PATH, {})
    await file.store()
    await file.add({"0a": ORDERS})
    return file


def note(file: EndsFile, end: int, *, topic_id: str = "0a", start: int = 0) -> bool:
    return file.note(
        topic_id, start=Offset(start), recovery_point=Offset(end), highwater=Offset(end)
    )


def loaded(disk: MemoryDisk) -> StoredEnds:
    stored = load_ends(disk, PATH)
    assert stored is not None
    return stored


def at(end: int, start: int = 0) -> NotedLog:
    return NotedLog(ORDERS, Offset(start), Offset(end), Offset(end), Offset(end))


def test_a_missing_file_of_ends_is_not_found() -> None:
    assert load_ends(empty_disk(), PATH) is None


async def test_a_noted_end_survives_a_killed_process_and_once_synced_a_power_failure() -> None:
    disk = empty_disk()
    file = await begun(disk)
    assert note(file, 100)
    assert not file.is_synced
    assert loaded(disk).logs == {"0a": at(100)}
    disk.crash(keep_page_cache=False)
    assert loaded(disk).logs == {"0a": at(0)}
    file = EndsFile(disk, PATH, loaded(disk).logs)
    await file.store()
    note(file, 200, start=50)
    await file.sync()
    assert file.is_synced
    disk.crash(keep_page_cache=False)
    assert loaded(disk) == StoredEnds({"0a": at(200, 50)}, 0, "")


async def test_an_end_that_is_not_greater_is_not_written_again() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    size_bytes = len(disk.content(PATH))
    assert not note(file, 100)
    assert not note(file, 90), "less than is noted"
    assert not note(file, 100, topic_id="other"), "a log that isn't listed"
    assert len(disk.content(PATH)) == size_bytes
    await file.sync()
    calls = len(disk.calls)
    await file.sync()
    assert len(disk.calls) == calls


async def test_an_end_that_is_set_back_is_durable_before_the_log_is_cut() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    await file.set_back("0a", Offset(10), Offset(60))
    disk.crash(keep_page_cache=False)
    assert loaded(disk).logs == {"0a": at(60, 10)}
    await file.set_back("0a", Offset(10), Offset(60))
    await file.set_back("unknown", Offset(0), Offset(0))
    assert file.logs == {"0a": at(60, 10)}


async def test_after_a_power_failure_the_file_of_ends_tells_what_was_committed() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    assert file.note_power_failure("0a", Offset(60))
    assert not file.note_power_failure("0a", Offset(60))
    assert not file.note_power_failure("unknown", Offset(60))
    disk.crash(keep_page_cache=True)
    left = NotedLog(ORDERS, Offset(0), Offset(100), Offset(100), Offset(60))
    assert loaded(disk).logs == {"0a": left}
    file = EndsFile(disk, PATH, loaded(disk).logs)
    await file.store()
    file.note("0a", start=Offset(0), recovery_point=Offset(60), highwater=Offset(80))
    assert file.logs == {"0a": attrs.evolve(left, cached_end=Offset(80))}
    note(file, 120)
    assert file.logs == {"0a": at(120)}


def stored(number: int, epochs: int = 1) -> NotedCheckpoint:
    table = tuple((epoch, 10 * epoch) for epoch in range(1, epochs + 1))
    return NotedCheckpoint(number, Offset(5), Offset(50), table)


async def test_the_number_of_the_newest_checkpoint_is_noted_and_kept_by_later_entries() -> None:
    disk = empty_disk()
    file = await begun(disk)
    assert file.note_checkpoint("0a", stored(3, epochs=2))
    assert not file.note_checkpoint("0a", stored(3))
    assert not file.note_checkpoint("0a", stored(2)), "one that was stored before"
    assert not file.note_checkpoint("other", stored(9)), "a log that isn't listed"
    note(file, 100)
    await file.set_back("0a", Offset(10), Offset(60))
    expected = attrs.evolve(at(60, 10), checkpoint=stored(3, epochs=2))
    assert loaded(disk).logs == {"0a": expected}
    await file.store()
    note(file, 70)
    assert loaded(disk).logs == {"0a": attrs.evolve(at(70, 10), checkpoint=expected.checkpoint)}


async def test_a_bounded_number_of_epochs_is_noted_and_the_newest_are_kept() -> None:
    disk = empty_disk()
    file = await begun(disk)
    file.note_checkpoint("0a", stored(1, epochs=5000))
    found = loaded(disk).logs["0a"].checkpoint
    assert found is not None
    assert found.epochs == stored(1, epochs=5000).epochs[-2000:]


async def test_a_log_whose_listing_failed_is_listed_durably_the_next_time() -> None:
    disk = empty_disk()
    file = EndsFile(disk, PATH, {})
    await file.store()
    disk.fail(errno.EIO, "sync")
    disk.fail(errno.EIO, "replace_file")
    with pytest.raises(StorageError):
        await file.add({"0a": ORDERS})
    await file.add({"0a": ORDERS})
    disk.crash(keep_page_cache=False)
    assert loaded(disk).logs == {"0a": at(0)}


async def test_the_ends_of_a_log_stay_noted_if_it_is_listed_again() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    await file.add({"0a": ORDERS})
    disk.crash(keep_page_cache=False)
    assert loaded(disk).logs == {"0a": at(100)}


async def test_a_log_that_is_deleted_is_listed_no_more() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    await file.remove("0a")
    await file.remove("0a")
    disk.crash(keep_page_cache=False)
    assert loaded(disk).logs == {}


async def test_an_entry_cut_at_every_byte_leaves_those_before_it() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    before = len(disk.content(PATH))
    note(file, 200)
    whole = disk.content(PATH)
    for cut in range(before, len(whole)):
        disk.plant(PATH, whole[:cut])
        assert loaded(disk) == StoredEnds({"0a": at(100)}, cut - before, "")


async def test_a_damaged_entry_is_distinguished_from_a_torn_one_by_what_follows() -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    first = len(disk.content(PATH))
    note(file, 200)
    second = len(disk.content(PATH))
    note(file, 300)
    whole = disk.content(PATH)
    for position in range(first, second):
        disk.plant(PATH, whole)
        disk.flip(PATH, 8 * position)
        stored = loaded(disk)
        assert stored.logs == {"0a": at(300)}, "what is sound is true"
        assert f"damaged at byte {first}" in stored.damage
    disk.plant(PATH, whole)
    disk.flip(PATH, 8 * second + 3)
    assert loaded(disk).damage == ""


async def test_the_first_of_two_damaged_places_is_reported() -> None:
    disk = empty_disk()
    file = await begun(disk)
    places = []
    for end in (100, 200, 300, 400):
        places.append(len(disk.content(PATH)))
        note(file, end)
    for place in (places[0], places[2]):
        disk.flip(PATH, 8 * (place + 20))
    stored = loaded(disk)
    assert stored.logs == {"0a": at(400)}
    assert f"damaged at byte {places[0]}" in stored.damage


async def test_a_log_whose_listing_is_damaged_is_known_without_its_description() -> None:
    disk = empty_disk()
    await begun(disk)
    disk.flip(PATH, 8 * 25)
    stored = loaded(disk)
    assert stored.logs == {"0a": NotedLog({})}
    assert stored.damage


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "only 0 bytes"),
        (b"octopi\r\n", "only 8"),
        (b"something else altogether", "doesn't begin"),
    ],
)
def test_a_file_of_ends_without_its_magic_bytes_is_damaged(content: bytes, why: str) -> None:
    disk = empty_disk()
    disk.plant(PATH, content)
    stored = loaded(disk)
    assert stored.logs == {}
    assert why in stored.damage


@pytest.mark.parametrize("version", [1, 2, 4])
def test_a_file_of_ends_of_a_newer_format_is_left_alone(version: int) -> None:
    disk = empty_disk()
    header = b"octopi\r\n" + version.to_bytes(4, "big")
    disk.plant(PATH, header + crc32(header).to_bytes(4, "big"))
    with pytest.raises(StorageError, match=f"format version {version}, this program knows 3"):
        load_ends(disk, PATH)


async def test_a_flipped_bit_in_the_format_version_is_damage() -> None:
    disk = empty_disk()
    await begun(disk)
    content = bytearray(disk.read_file(PATH))
    content[11] ^= 2
    disk.plant(PATH, bytes(content))
    assert "doesn't begin like" in loaded(disk).damage


async def test_a_file_of_ends_that_can_not_be_read_is_a_storage_error() -> None:
    disk = empty_disk()
    await begun(disk)
    disk.fail(errno.EIO, "read_file")
    with pytest.raises(StorageError, match="can't be read"):
        load_ends(disk, PATH)


async def test_a_long_file_of_ends_is_replaced_by_its_newest_entries() -> None:
    disk = empty_disk()
    file = await begun(disk)
    end = 0
    while len(disk.content(PATH)) <= 64 * 1024:
        end += 1
        note(file, end)
    await file.sync()
    assert len(disk.content(PATH)) < 200
    assert loaded(disk).logs == {"0a": at(end)}
    note(file, end + 1)
    assert loaded(disk).logs == {"0a": at(end + 1)}


async def test_an_end_noted_while_the_file_is_replaced_is_in_the_new_file(
    nursery: trio.Nursery,
) -> None:
    replaced, may_go_on = trio.Event(), trio.Event()

    class SlowDisk(MemoryDisk):
        async def replace_file(self, path: str, data: bytes) -> None:
            await super().replace_file(path, data)
            replaced.set()
            await may_go_on.wait()

    disk = SlowDisk()
    disk.make_directory("/data/replicas")
    may_go_on.set()
    file = await begun(disk)
    await file.add({"0b": {"topic": "other"}})
    replaced, may_go_on = trio.Event(), trio.Event()
    nursery.start_soon(file.store)
    await replaced.wait()
    note(file, 100)
    may_go_on.set()
    await trio.testing.wait_all_tasks_blocked()
    assert loaded(disk).logs["0a"] == at(100)
    assert not file.is_synced


@pytest.mark.parametrize("operation", ["append", "sync"])
async def test_a_file_of_ends_with_a_failed_append_is_replaced_as_a_whole(operation: str) -> None:
    disk = empty_disk()
    file = await begun(disk)
    disk.fail(errno.EIO, operation, path_end=".ends")
    note(file, 100)
    note(file, 200)
    await file.sync()
    assert file.is_synced
    disk.crash(keep_page_cache=False)
    assert loaded(disk) == StoredEnds({"0a": at(200)}, 0, "")


async def test_an_append_that_fails_during_a_sync_has_the_file_of_ends_replaced(
    nursery: trio.Nursery,
) -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    with disk.syncs_held():
        nursery.start_soon(file.sync)
        await trio.testing.wait_all_tasks_blocked()
        disk.fail(errno.ENOSPC, "append", path_end=".ends")
        note(file, 200)
    await trio.testing.wait_all_tasks_blocked()
    assert loaded(disk).logs == {"0a": at(200)}


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, DiskFullError), (errno.EIO, StorageError)]
)
async def test_a_failed_replacement_of_the_file_of_ends_is_tried_again(
    code: int, error: type[StorageError]
) -> None:
    disk = empty_disk()
    file = await begun(disk)
    disk.fail(code, "replace_file", path_end=".ends")
    with pytest.raises(error):
        await file.store()
    note(file, 100)
    await file.sync()
    assert loaded(disk).logs == {"0a": at(100)}
    file.close()
    file.close()
    assert disk.open_files == []


async def test_a_due_sync_does_not_make_a_removed_file_of_ends_again() -> None:
    """The replica was given up a moment before."""
    disk = empty_disk()
    file = await begun(disk)
    assert note(file, 5)
    await file.end()
    disk.remove(PATH)
    await file.sync()
    assert load_ends(disk, PATH) is None


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x020a",
        b"\x05\x020a",
        b"\x01\x020a",
        b"\x01\x020a\x80",
        b"\x01\x020a\xff",
        b"\x01\x01\xff\xa0",
        b"\x02\x020a" + bytes(23),
        b"\x03\x020a?",
        b"\x04\x020a" + bytes(23),
        b"\x04\x020a" + bytes(25),
    ],
)
async def test_an_impossible_entry_is_invalid_even_with_a_correct_checksum(
    content: bytes,
) -> None:
    disk = empty_disk()
    file = await begun(disk)
    note(file, 100)
    before = disk.content(PATH)
    note(file, 200)
    behind = disk.content(PATH)[len(before) :]
    odd = len(content).to_bytes(4, "big") + crc32(content).to_bytes(4, "big") + content
    disk.plant(PATH, before + odd + behind)
    assert loaded(disk).logs == {"0a": at(200)}
    assert f"damaged at byte {len(before)}" in loaded(disk).damage
    disk.plant(PATH, before + odd)
    assert loaded(disk) == StoredEnds({"0a": at(100)}, len(odd), "")
