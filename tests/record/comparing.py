"""What the kernels say of bytes, beside what Python says of them."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs
import pytest

from octopi import kernels
from octopi.errors import RecordError
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.kernels import Kernels
from octopi.record import BatchBuilder, Message, Scan, decode, scan

TOPIC, PARTITION = TopicName("orders"), PartitionId(3)

Told = tuple[type[Exception], str, str]
"""An error's type, text and code."""


class StoppingKernels:
    """Kernels for which no record is plain."""

    SOURCE = ""
    RECORD_BYTES_MAX = 0

    def scan(
        self,
        buffer: bytes | memoryview,
        position: int,
        limit: int,
        producer: bytes,
        sequence: int,
        timestamp_max_ms: int,
        /,
    ) -> tuple[int, int, int]:
        return position, sequence, timestamp_max_ms

    def decode(
        self,
        buffer: bytes | memoryview,
        position: int,
        base_offset: int,
        topic: str,
        partition: int,
        message_type: object,
        no_headers: Mapping[str, bytes],
        messages: object,
        /,
    ) -> int:
        return position

    def values(
        self, buffer: bytes | memoryview, position: int, base_offset: int, /
    ) -> tuple[int, list[bytes], bytes]:
        return position, [], b""

    def encode(self, messages: object, producer: bytes, first_sequence: int, /) -> bytes | None:
        return None

    def crc32(self, way: str, buffer: bytes | memoryview, /) -> int | None:
        return None


def compiled_kernels() -> Kernels:
    """Those of this installation.  The test is skipped where there are none, which CI refuses."""
    loaded = kernels.load("")
    if isinstance(loaded, str):
        if os.environ.get("CI"):
            pytest.fail(f"no compiled kernels: {loaded}")
        pytest.skip(f"no compiled kernels: {loaded}")
    return loaded


@contextmanager
def using(chosen: Kernels | None) -> Iterator[None]:
    """Handle records with these kernels, within the block."""
    before = kernels.KERNELS
    kernels.KERNELS = chosen
    try:
        yield
    finally:
        kernels.KERNELS = before


def told(error: RecordError | None) -> Told | None:
    return None if error is None else (type(error), str(error), error.code)


def scanned(
    buffer: bytes | memoryview, count_max: int, chosen: Kernels | None
) -> tuple[Scan, Told | None]:
    with using(chosen):
        found = scan(buffer, count_max)
    return attrs.evolve(found, fault=None), told(found.fault)


def decoded(
    buffer: bytes | memoryview, base_offset: int, chosen: Kernels | None
) -> list[Message] | Told | None:
    try:
        with using(chosen):
            return decode(buffer, Offset(base_offset), TOPIC, PARTITION)
    except RecordError as error:
        return told(error)


def encoded(
    builder: BatchBuilder, producer: tuple[bytes, int], sequence: int, chosen: Kernels | None
) -> bytes | Told | None:
    producer_id, epoch = producer
    try:
        with using(chosen):
            return builder.encode(ProducerId(producer_id), ProducerEpoch(epoch), Sequence(sequence))
    except RecordError as error:
        return told(error)


def check_agreement(
    compiled: Kernels,
    buffer: bytes | memoryview,
    count_max: int = 1 << 40,
    base_offset: int = 0,
) -> None:
    """That *compiled* kernels and Python say the same of *buffer*, in values, types and errors."""
    assert scanned(buffer, count_max, compiled) == scanned(buffer, count_max, None)
    fast, slow = (decoded(buffer, base_offset, one) for one in (compiled, None))
    assert fast == slow
    assert types_in(fast) == types_in(slow)
    check_values(compiled, buffer, base_offset)


def check_values(compiled: Kernels, buffer: bytes | memoryview, base_offset: int) -> None:
    """That ``values`` gives, from each of the first few records on, those up to one that isn't
    plain.  None is taken if offsets don't fit the array."""
    with using(None):
        valid = memoryview(buffer)[: scan(buffer).valid_bytes]
        messages = decode(valid, Offset(base_offset), TOPIC, PARTITION)
    fits = 0 <= base_offset < 2**63 - len(buffer)
    plain = [fits and one.timestamp_ms is not None and not one.headers for one in messages]
    for first in range(min(len(messages), 3) + 1):
        start = int(messages[first].offset) - base_offset if first < len(messages) else len(valid)
        stop, values, raw = compiled.values(buffer, start, base_offset)
        offsets = array("q")
        offsets.frombytes(raw)
        until = next((at for at in range(first, len(plain)) if not plain[at]), len(plain))
        assert values == [one.value for one in messages[first:until]]
        assert offsets.tolist() == [one.offset for one in messages[first:until]]
        assert stop == (
            len(valid) if until == len(messages) else int(messages[until].offset) - base_offset
        )


def types_in(messages: object) -> object:
    """The types of messages and of what is in them."""
    if not isinstance(messages, list):
        return type(messages)
    return [(type(message), *map(type, message)) for message in messages]
