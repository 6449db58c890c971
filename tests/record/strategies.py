"""Logs of every kind that encoders can write, each with what was put into it."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import attrs
from hypothesis import strategies as st

from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder, encode_opaque
from tests.record.crafting import NO_KEY, craft, craft_header, craft_structured

UINT32 = st.integers(0, 2**32 - 1)
UINT64 = st.integers(0, 2**64 - 1)


@attrs.frozen
class Sent:
    """A message as a producer gave it."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, bytes] = attrs.field(factory=dict)
    timestamp_ms: int | None = None
    """None: sent as version 1."""
    producer: tuple[bytes, int] | None = None
    """Producer id and epoch; None: sent as version 1."""
    sequence: int = -1
    request_id: bytes = b""


@attrs.frozen
class BuiltLog:
    """The bytes of a log and what they were made of."""

    data: bytes
    sent: list[Sent]
    starts: list[int]
    """Where each record starts, then the end."""


values = st.one_of(
    st.binary(max_size=40),
    # Rarely interesting inside, but long enough for several marks in one log.
    st.sampled_from([30_000, 66_000]).map(bytes),
)

messages = st.builds(
    Sent,
    value=values,
    key=st.none() | st.binary(max_size=20),
    headers=st.dictionaries(st.text(max_size=8), st.binary(max_size=12), max_size=3),
    timestamp_ms=UINT64,
)


@st.composite
def logs(draw: st.DrawFn, batches_max: int = 6) -> BuiltLog:
    """Batches of a few producers and version 1 records, mixed."""
    data, starts = bytearray(), [0]
    sent: list[Sent] = []
    following: dict[tuple[bytes, int], int] = {}
    for _ in range(draw(st.integers(0, batches_max))):
        if draw(st.integers(0, 3)) == 0:
            request_id, value = draw(st.binary(min_size=32, max_size=32)), draw(values)
            data += encode_opaque(request_id, value)
            sent.append(Sent(value, request_id=request_id))
            starts.append(len(data))
            continue
        producer = (draw(st.sampled_from([b"a" * 16, b"b" * 16])), draw(st.integers(1, 2)))
        batch = draw(st.lists(messages, min_size=1, max_size=4))
        sequence = following.get(producer, 0)
        if draw(st.integers(0, 3)) == 0:  # a gap, a repetition, or near the end of the numbers
            sequence = draw(st.sampled_from([0, 1, 5, 2**64 - len(batch)]))
        sequence = min(sequence, 2**64 - len(batch))
        builder = BatchBuilder()
        for index, one in enumerate(batch):
            assert one.timestamp_ms is not None
            position = builder.add(one.value, one.key, one.headers, one.timestamp_ms)
            assert position + len(data) == starts[-1]
            number = sequence + index
            request_id = struct.pack(">16sIIQ", *producer, 0, number)
            sent.append(
                attrs.evolve(one, producer=producer, sequence=number, request_id=request_id)
            )
            starts.append(len(data) + builder.size_bytes)
        producer_id, epoch = producer
        data += builder.encode(ProducerId(producer_id), ProducerEpoch(epoch), Sequence(sequence))
        following[producer] = sequence + len(batch)
    return BuiltLog(bytes(data), sent, starts)


lengths = st.integers(0, 40) | UINT32 | st.just(NO_KEY)
header_blocks = st.lists(
    st.builds(craft_header, st.binary(max_size=4), st.binary(max_size=6)), max_size=3
).map(b"".join)


@st.composite
def crafted_records(draw: st.DrawFn) -> bytes:
    """Records with a checksum that matches, and with any other fields."""
    if draw(st.booleans()):
        body = draw(st.binary(max_size=100))
        return craft(draw(st.integers(0, 3)), body)
    block, rest = draw(header_blocks), draw(st.binary(max_size=20))
    return craft_structured(
        block + rest,
        key_length=draw(lengths),
        headers_length=draw(st.just(len(block)) | lengths),
        reserved=draw(st.sampled_from([0, 0, 0, 1])),
        sequence=draw(UINT64),
        timestamp_ms=draw(UINT64),
    )


@st.composite
def damaged_logs(draw: st.DrawFn) -> bytes:
    """Logs in which a few stretches were replaced, removed or put in."""
    data = bytearray(draw(logs(batches_max=3)).data)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        stop = draw(st.integers(start, min(len(data), start + 8)))
        data[start:stop] = draw(st.binary(max_size=8))
    return bytes(data)


anything = st.one_of(
    logs().map(lambda log: log.data),
    damaged_logs(),
    st.lists(crafted_records(), max_size=4).map(b"".join),
    st.binary(max_size=300),
)
"""Bytes that are records, nearly are, or are not."""
