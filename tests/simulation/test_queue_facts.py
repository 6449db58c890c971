"""What the rules of queues know of the messages in a log."""

from __future__ import annotations

from typing import cast

import attrs

from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder
from octopi.simulation.disk.log_bytes import LogBytes
from octopi.simulation.invariants.queue_facts import KnownQueue


@attrs.frozen
class HostLog:
    """The log as one host has it, after retention removed what is before *start*."""

    data: bytes
    start: int

    @property
    def end(self) -> int:
        return len(self.data)

    def read(self, start: int, end: int) -> bytes:
        return self.data[max(start, self.start) : end]


def messages_of(count: int) -> tuple[bytes, list[int]]:
    """Records, and the offset of each."""
    builder = BatchBuilder()
    offsets = [builder.add(b"value") for _ in range(count)]
    return builder.encode(ProducerId(bytes(16)), ProducerEpoch(0), Sequence(0)), offsets


def test_messages_that_retention_has_removed_at_one_host_only_are_read_at_another() -> None:
    data, offsets = messages_of(6)
    queue = KnownQueue("51" * 8, "orders", PartitionId(0))

    def known(begin: int, end: int, *, log_start: int) -> list[int]:
        log = cast(LogBytes, HostLog(data, log_start))
        return [one.offset for one in queue.messages(Offset(begin), Offset(end), log)]

    assert known(0, offsets[1], log_start=0) == offsets[:1]
    assert known(offsets[1], len(data), log_start=offsets[4]) == offsets[4:]
    assert known(offsets[2], len(data), log_start=offsets[2]) == offsets[2:]
