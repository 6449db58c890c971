"""Making records: those of one message, and whole batches of a producer.

The format is in `octopi.record_format`.  Where there are compiled kernels (`octopi.kernels`), they
encode the batches.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from itertools import islice
from zlib import crc32

from octopi import kernels
from octopi.errors import MalformedRecordError
from octopi.identifiers import ProducerEpoch, ProducerId, Sequence
from octopi.limits import RECORD_BYTES_MAX
from octopi.record_format import (
    BODY,
    FRAME,
    HEADER_BYTES,
    LENGTH_MIN_V1,
    LENGTH_MIN_V2,
    NO_KEY,
    OPAQUE,
    PRODUCER,
    PRODUCER_ID_BYTES,
    REQUEST_ID_BYTES,
    STRUCTURED,
    STRUCTURED_BYTES_MIN,
    UINT32_MAX,
    UINT64_MAX,
)
from octopi.record_headers import NO_HEADERS, encode_headers


def request_id_v1(host: str, port: int, sequence: int) -> bytes:
    """The request id of version 1: ``sha256("host:port:seqnum")`` (32 bytes)."""
    return hashlib.sha256(f"{host}:{port}:{sequence}".encode()).digest()


def producer_id_of(kind: str, name: str) -> ProducerId:
    """The producer id of a producer with a *name*: the first 16 bytes of the SHA-256 digest of the
    text ``octopi KIND NAME``.  The *kind* is ``producer`` for named producers of clients; others
    that make ids from names have kinds of their own."""
    digest = hashlib.sha256(f"octopi {kind} {name}".encode()).digest()
    return ProducerId(digest[:PRODUCER_ID_BYTES])


def request_id_v2(producer_id: ProducerId, epoch: ProducerEpoch, sequence: Sequence) -> bytes:
    """The request id of version 2 (32 bytes).

    Raises:
      MalformedRecordError: if a part doesn't fit its field.
    """
    return _producer(producer_id, epoch, sequence, sequence) + sequence.to_bytes(12, "big")


def encode_opaque(request_id: bytes, payload: bytes) -> bytes:
    """A version 1 record.

    Raises:
      MalformedRecordError: if the request id doesn't have 32 bytes, or the payload is too large.
    """
    if len(request_id) != REQUEST_ID_BYTES:
        raise MalformedRecordError(
            f"a request id has {REQUEST_ID_BYTES} bytes, this one has {len(request_id)}"
        )
    _check_size(HEADER_BYTES + len(payload))
    frame = FRAME.pack(LENGTH_MIN_V1 + len(payload), OPAQUE, crc32(payload))
    return b"".join((frame, request_id, payload))


class BatchBuilder:
    """Collects messages and encodes them as consecutive version 2 records.

    Sequences are assigned at the end, in `encode`, so a batch that was never sent can be dropped
    without leaving a gap.  `add` costs a size computation and a list append; all other work is one
    tight loop in `encode`.
    """

    __slots__ = ("_messages", "size_bytes")

    def __init__(self) -> None:
        self._messages: list[tuple[bytes, bytes | None, bytes, int]] = []
        self.size_bytes = 0
        """The size of the result of `encode` (bytes)."""

    def __len__(self) -> int:
        return len(self._messages)

    def add(
        self,
        value: bytes,
        key: bytes | None = None,
        headers: Mapping[str, bytes] = NO_HEADERS,
        timestamp_ms: int = 0,
    ) -> int:
        """Add a message; return its record's position in the batch (bytes).

        Raises:
          MalformedRecordError: if the message doesn't fit the format; it isn't added.
        """
        block = encode_headers(headers) if headers else b""
        size = record_size_bytes(value, key, block)
        _check_size(size)
        if not 0 <= timestamp_ms <= UINT64_MAX:
            raise _time_stamp_fault(timestamp_ms)
        position = self.size_bytes
        self._messages.append((value, key, block, timestamp_ms))
        self.size_bytes = position + size
        return position

    def add_many(
        self,
        values: list[bytes],
        begin: int,
        headers: Mapping[str, bytes] = NO_HEADERS,
        timestamp_ms: int = 0,
        *,
        size_bytes_max: int,
        count_max: int = sys.maxsize,
    ) -> int:
        """Add messages without keys, from ``values[begin]`` on, until the batch has
        *size_bytes_max* or more, or *count_max* messages; return the number of added messages.
        `check_values` must have accepted all values.

        Raises:
          MalformedRecordError: if headers or time stamp don't fit the format; none is added.
        """
        block = encode_headers(headers) if headers else b""
        if not 0 <= timestamp_ms <= UINT64_MAX:
            raise _time_stamp_fault(timestamp_ms)
        append, fixed = self._messages.append, STRUCTURED_BYTES_MIN + len(block)
        count, size_bytes = len(self._messages), self.size_bytes
        for value in islice(values, begin, min(len(values), begin + max(0, count_max - count))):
            append((value, None, block, timestamp_ms))
            size_bytes += fixed + len(value)
            if size_bytes >= size_bytes_max:
                break
        self.size_bytes = size_bytes
        return len(self._messages) - count

    def key(self, number: int) -> bytes | None:
        """The key of a message, which has *number* messages before it."""
        return self._messages[number][1]

    def add_from(self, other: BatchBuilder, number: int) -> int:
        """Add the message of *other* that has *number* messages before it; return its record's
        position in the batch (bytes)."""
        value, key, block, _ = message = other._messages[number]
        position = self.size_bytes
        self._messages.append(message)
        self.size_bytes = position + record_size_bytes(value, key, block)
        return position

    def encode(
        self, producer_id: ProducerId, epoch: ProducerEpoch, first_sequence: Sequence
    ) -> bytes:
        """The records of all messages, with consecutive sequences.

        Raises:
          MalformedRecordError: if a part of the request ids doesn't fit its field.
        """
        last_sequence = first_sequence + max(0, len(self._messages) - 1)
        producer = _producer(producer_id, epoch, first_sequence, last_sequence)
        if (compiled := kernels.KERNELS) is not None:
            records = compiled.encode(self._messages, producer, first_sequence)
            if records is not None:
                return records
        pack_frame, pack_body = FRAME.pack, BODY.pack
        parts: list[bytes] = []
        append = parts.append
        sequence: int = first_sequence
        for value, key, headers, timestamp_ms in self._messages:
            if key is None:
                tail = headers + value if headers else value
                body = pack_body(producer, 0, sequence, timestamp_ms, NO_KEY, len(headers))
            else:
                tail = b"".join((headers, key, value))
                body = pack_body(producer, 0, sequence, timestamp_ms, len(key), len(headers))
            length = LENGTH_MIN_V2 + len(tail)
            append(pack_frame(length, STRUCTURED, crc32(tail, crc32(body))))
            append(body)
            append(tail)
            sequence += 1
        return b"".join(parts)


def record_size_bytes(value: bytes, key: bytes | None, headers: bytes) -> int:
    """The size of a version 2 record with this value, key and encoded header block."""
    return STRUCTURED_BYTES_MIN + len(value) + len(headers) + (len(key) if key is not None else 0)


def check_values(values: list[bytes], headers: Mapping[str, bytes] = NO_HEADERS) -> None:
    """Check that each of *values* fits a record with *headers* and no key.

    Raises:
      MalformedRecordError: if a value doesn't.
    """
    block_bytes = len(encode_headers(headers)) if headers else 0
    _check_size(STRUCTURED_BYTES_MIN + block_bytes + max(map(len, values), default=0))


def _check_size(size_bytes: int) -> None:
    if size_bytes > RECORD_BYTES_MAX:
        raise MalformedRecordError(
            f"a record has at most {RECORD_BYTES_MAX} bytes, this one would have {size_bytes}",
            code="message_too_large",
        )


def _time_stamp_fault(timestamp_ms: int) -> MalformedRecordError:
    return MalformedRecordError(
        f"a time stamp of {timestamp_ms} ms doesn't fit 64 bits", code="invalid_option"
    )


def _producer(producer_id: bytes, epoch: int, first_sequence: int, last_sequence: int) -> bytes:
    """The producer id and epoch in request ids with sequences from first to last, checked."""
    if len(producer_id) != PRODUCER_ID_BYTES:
        raise MalformedRecordError(
            f"a producer id has {PRODUCER_ID_BYTES} bytes, this one has {len(producer_id)}"
        )
    if not 0 <= epoch <= UINT32_MAX:
        raise MalformedRecordError(f"producer epoch {epoch} doesn't fit 32 bits")
    if not 0 <= first_sequence <= last_sequence <= UINT64_MAX:
        raise MalformedRecordError(
            f"sequences {first_sequence} to {last_sequence} don't fit 64 bits"
        )
    return PRODUCER.pack(producer_id, epoch)
