"""Small files that are replaced as a whole."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any
from zlib import crc32

import attrs
import cbor2
import pytest
from hypothesis import given, strategies as st

from octopi.environment import Disk
from octopi.errors import DiskFullError, StorageError
from octopi.operating_system import SystemDisk
from octopi.storage import checkpoint
from octopi.storage.checkpoint import DamagedCheckpointError
from tests.kit.disk import MemoryDisk
from tests.storage.building import empty_disk

PATH = "/data/checkpoint"
CONTENT = {
    "recovery_point": 2**40,
    "epochs": [[1, 0], [2, 77]],
    "producers": b"\x00\xff",
    "x": None,
}


@pytest.fixture(params=["memory", "system"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "system":
        return SystemDisk(), str(tmp_path / "checkpoint")
    return empty_disk(), PATH


async def test_the_newest_checkpoint_is_loaded(place: tuple[Disk, str]) -> None:
    disk, path = place
    assert checkpoint.load(disk, path) is None
    await checkpoint.store(disk, path, CONTENT)
    assert checkpoint.load(disk, path) == CONTENT
    await checkpoint.store(disk, path, {})
    assert checkpoint.load(disk, path) == {}


async def test_a_checkpoint_file_has_the_declared_format() -> None:
    disk = empty_disk()
    await checkpoint.store(disk, PATH, {"a": 1})
    content = cbor2.dumps({"a": 1})
    assert disk.content(PATH) == (
        b"octopi\r\n"
        + b"\x00\x00\x00\x01"
        + crc32(b"\x00\x00\x00\x01" + content).to_bytes(4, "big")
        + content
    )


async def test_a_flipped_bit_anywhere_in_a_checkpoint_file_is_damage() -> None:
    disk = empty_disk()
    await checkpoint.store(disk, PATH, CONTENT)
    for bit in range(8 * len(disk.content(PATH))):
        disk.flip(PATH, bit)
        with pytest.raises(DamagedCheckpointError, match=PATH):
            checkpoint.load(disk, PATH)
        disk.flip(PATH, bit)
    assert checkpoint.load(disk, PATH) == CONTENT


async def test_a_checkpoint_file_that_became_shorter_is_damage() -> None:
    disk = empty_disk()
    await checkpoint.store(disk, PATH, CONTENT)
    whole = disk.content(PATH)
    for size_bytes in range(len(whole)):
        disk.plant(PATH, whole[:size_bytes])
        with pytest.raises(DamagedCheckpointError):
            checkpoint.load(disk, PATH)


def planted(payload: bytes, version: int = 1) -> MemoryDisk:
    disk = empty_disk()
    numbered = version.to_bytes(4, "big")
    header = b"octopi\r\n" + numbered + crc32(numbered + payload).to_bytes(4, "big")
    disk.plant(PATH, header + payload)
    return disk


@pytest.mark.parametrize("payload", [b"", b"\xff", b"\x5f", cbor2.dumps([1]), cbor2.dumps(1)])
def test_a_checkpoint_whose_content_is_not_a_map_is_damaged(payload: bytes) -> None:
    with pytest.raises(DamagedCheckpointError, match="it holds no"):
        checkpoint.load(planted(payload), PATH)


@given(st.binary(max_size=40))
def test_random_content_with_a_valid_checksum_is_a_map_or_damage(payload: bytes) -> None:
    try:
        content = checkpoint.load(planted(payload), PATH)
    except DamagedCheckpointError:
        return
    assert isinstance(content, dict)


def test_a_checkpoint_of_a_later_version_is_not_called_damaged() -> None:
    with pytest.raises(StorageError, match="format version 2") as error:
        checkpoint.load(planted(cbor2.dumps({}), version=2), PATH)
    assert not isinstance(error.value, DamagedCheckpointError)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError), (errno.EIO, StorageError)],
)
@pytest.mark.parametrize("done", [False, True])
async def test_a_failed_replacement_of_a_checkpoint_leaves_the_old_or_the_new_content(
    number: int, kind: type[StorageError], done: bool
) -> None:
    disk = empty_disk()
    await checkpoint.store(disk, PATH, {"old": 1})
    disk.fail(number, "replace_file", done=done)
    with pytest.raises(kind, match=PATH):
        await checkpoint.store(disk, PATH, {"new": 1})
    expected: dict[str, Any] = {"new": 1} if done else {"old": 1}
    assert checkpoint.load(disk, PATH) == expected


def test_a_checkpoint_file_that_can_not_be_read_is_a_storage_error() -> None:
    disk = planted(cbor2.dumps({}))
    disk.fail(errno.EACCES, "read_file")
    with pytest.raises(StorageError, match="Permission denied"):
        checkpoint.load(disk, PATH)


@attrs.frozen
class Facts:
    """What an owner wants to find in a file."""

    name: str
    numbers: list[int]
    is_so: bool = False


async def test_checkpoint_fields_are_read_as_they_were_written() -> None:
    facts = Facts("a", [1, 2], True)
    assert checkpoint.structured(PATH, attrs.asdict(facts), Facts) == facts
    assert checkpoint.structured(PATH, {"name": "a", "numbers": []}, Facts) == Facts("a", [])


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"name": "a"}, "numbers"),
        ({"name": 7, "numbers": []}, "a str was expected"),
        ({"name": "a", "numbers": ["x"]}, "a int was expected"),
        ({"name": "a", "numbers": [True]}, "a int was expected"),
        ({"name": "a", "numbers": 7}, "numbers"),
        ({"name": "a", "numbers": [], "other": 1}, "there is no field 'other'"),
        ({"name": "a", "numbers": [], b"other": 1, 7: 2}, "there is no field 7"),
    ],
)
def test_a_checkpoint_with_a_missing_unknown_or_mistyped_field_is_damaged(
    content: dict[Any, Any], why: str
) -> None:
    with pytest.raises(DamagedCheckpointError, match=why) as caught:
        checkpoint.structured(PATH, content, Facts)
    assert PATH in str(caught.value)
    assert len(str(caught.value)) < 600
