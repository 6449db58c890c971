"""The file of ends of a replica: which logs it has, and what is durable of them."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

import attrs
import cbor2
import trio
from hypothesis import strategies as st

from octopi.errors import StorageError
from octopi.identifiers import Offset
from octopi.roles.broker.replica_ends import topic_of
from octopi.storage.ends_file import MAGIC, VERSION, EndsFile, NotedCheckpoint, NotedLog, load_ends
from octopi.wire.messages import TopicRecord
from tests.fuzz.target import Target
from tests.fuzz.ways import unfollowed
from tests.kit.disk import MemoryDisk
from tests.strategies import instances

_VERSION: Final = VERSION.to_bytes(4, "big")
_HEAD: Final = MAGIC + _VERSION + crc32(MAGIC + _VERSION).to_bytes(4, "big")


def sealed(data: bytes) -> bytes:
    """*data*, as entries, with the checksums that they should have, as far as their lengths lead;
    behind a header."""
    changed = bytearray(data)
    at = 0
    while at + 8 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        changed[at + 4 : at + 8] = crc32(data[at + 8 : end]).to_bytes(4, "big")
        at = end
    return _HEAD + bytes(changed)


def check(data: bytes) -> bool:
    """It is tried as a file, and as entries that are whole."""
    _check_file(data)
    return _check_file(sealed(data))


def _check_file(data: bytes) -> bool:
    """Whether it has an entry."""
    disk = MemoryDisk()
    disk.make_directory("data")
    disk.plant("data/0.ends", data)
    found = None
    with suppress(StorageError):
        found = load_ends(disk, "data/0.ends")
    assert disk.files() == {"data/0.ends": data}, "reading changed it"
    if found is None:
        return False
    assert 0 <= found.torn_bytes <= len(data)
    for log in found.logs.values():
        with suppress(StorageError):
            topic_of(log.topic)
    # What is read can be written, and then says the same, without damage.
    file = EndsFile(disk, "data/0.ends", found.logs)
    with unfollowed():
        trio.run(file.store)
    file.close()
    again = load_ends(disk, "data/0.ends")
    assert again is not None
    assert not again.damage
    assert not again.torn_bytes
    assert again.logs == found.logs, "what is written again says something else"
    return bool(found.logs)


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    """Entries, as they are written."""
    disk = MemoryDisk()
    disk.make_directory("data")
    records: list[Any] = draw(st.lists(instances(TopicRecord), min_size=1, max_size=2))
    logs = {record.topic_id: NotedLog(attrs.asdict(record)) for record in records}
    file = EndsFile(disk, "data/0.ends", logs)
    trio.run(file.store)
    for topic_id in draw(st.lists(st.sampled_from(sorted(logs)), max_size=3)):
        point = draw(st.integers(1, 1000))
        file.note(topic_id, start=Offset(0), recovery_point=Offset(point), highwater=Offset(point))
        file.note_checkpoint(topic_id, NotedCheckpoint(point, Offset(0), Offset(0), ((1, 0),)))
    if draw(st.booleans()):
        trio.run(file.remove, draw(st.sampled_from(sorted(logs))))
    file.close()
    return disk.content("data/0.ends")[len(_HEAD) :]


def _entry(kind: int, topic_id: bytes, rest: bytes) -> bytes:
    content = bytes((kind, len(topic_id))) + topic_id + rest
    return struct.pack(">II", len(content), crc32(content)) + content


TARGET = Target(
    "ends",
    "any file is left as it is, and refused with an error that names it, or taken up to what is "
    "damaged; what was taken can be written again and says the same",
    _files() | _files().map(lambda entries: _HEAD + entries),
    check,
    ("octopi/storage/ends_file.py", "octopi/roles/broker/replica_ends.py"),
    words=(
        _entry(1, b"a", cbor2.dumps({})), _entry(2, b"a", bytes(32)), _entry(3, b"a", b""),
        _entry(4, b"a", bytes(24)), _entry(4, b"a", bytes(40)), _entry(1, b"a", cbor2.dumps(1)),
        _entry(2, b"a", b"x"), _entry(5, b"a", b""), _entry(1, b"\xff", b""), _HEAD, bytes(4),
        b"\xff" * 8, cbor2.dumps({}), cbor2.dumps([]), cbor2.dumps("topic"), b"\x00\x01\x00\x00",
    ),
)  # fmt: skip
