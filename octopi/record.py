"""The record: one message as it is stored and sent.

A record has the same bytes on disk, on the wire and at consumers: the producer encodes it in its
final form, and no other program encodes it again.  All numbers are unsigned and in network byte
order.

==========  =====  ====================================================================
field       bytes  meaning
==========  =====  ====================================================================
length      4      bytes that follow this field: 1 + 4 + 32 + n
version     1      1 or 2
checksum    4      CRC-32 (IEEE 802.3, as `zlib.crc32`); see below
request_id  32     identifies the sender, and which of its requests this is
payload     n      see below
==========  =====  ====================================================================

**Version 1**: the payload is opaque, ``request_id`` is ``sha256("host:port:seqnum")``, and the
checksum covers *the payload only*, so that it is the checksum that a producer computed over its
message.  A change of the request id is therefore not detected.  A request id of 32 zero bytes means
that the record has none, and is never recognised as a repetition of another.

**Version 2**, which Octopi's clients write: the checksum covers request id and payload.

==================  =====  ============================================================
request_id          bytes
==================  =====  ============================================================
producer_id         16     random, one for each producer, or made from its name
producer_epoch      4      counts the restarts of that producer id
reserved            4      zero; other values are refused
sequence            8      counts its records in one log, per producer epoch, from 0
==================  =====  ============================================================

==================  =====  ============================================================
payload             bytes
==================  =====  ============================================================
timestamp_ms        8      since 1970-01-01 UTC, by the producer's clock
key_length          4      ``0xFFFFFFFF``: no key
headers_length      4      bytes of the header block
headers             h      per header: name_length 2, name (UTF-8), value_length 4, value
key                 k
value               rest
==================  =====  ============================================================

Neither checksum covers ``length`` and ``version``.  But a changed length moves the end of the bytes
that the checksum covers, so it is detected, and the versions differ in two bits.

A reader of a log walks from length to length.  After an interrupted write the log ends in a torn
tail, an incomplete last record.

This module only computes; it knows no file, no socket and no clock.  Where `octopi.kernels` has
compiled code, that does the same for plain records: of version 2, valid, without headers.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple
from zlib import crc32

import attrs

from octopi import kernels
from octopi.errors import ChecksumError, IncompleteRecordError, MalformedRecordError, RecordError
from octopi.identifiers import (
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence,
    TimestampMs,
    TopicName,
)
from octopi.limits import INDEX_INTERVAL_BYTES, RECORD_BYTES_MAX
from octopi.record_headers import (
    NO_HEADERS as NO_HEADERS,
    decode_headers as decode_headers,
    encode_headers as encode_headers,
)

OPAQUE: Final = 1
"""Version 1."""
STRUCTURED: Final = 2
"""Version 2."""
LENGTH_BYTES: Final = 4
HEADER_BYTES: Final = 41
"""length, version, checksum, request id."""
REQUEST_ID_BYTES: Final = 32
NO_REQUEST: Final = bytes(REQUEST_ID_BYTES)
"""The request id of version 1 records whose repetitions are not recognised."""
PRODUCER_ID_BYTES: Final = 16
FIXED_PAYLOAD_BYTES: Final = 16
"""In version 2: the time stamp and the two lengths."""
STRUCTURED_BYTES_MIN: Final = HEADER_BYTES + FIXED_PAYLOAD_BYTES

_FRAME: Final = struct.Struct(">IBI")
_CHECKSUM_END: Final = _FRAME.size
_LENGTH_MIN_V1: Final = HEADER_BYTES - LENGTH_BYTES
_LENGTH_MIN_V2: Final = STRUCTURED_BYTES_MIN - LENGTH_BYTES
_LENGTH_MAX: Final = RECORD_BYTES_MAX - LENGTH_BYTES
_BODY: Final = struct.Struct(">20sIQQII")
"""producer id and epoch, reserved, sequence, timestamp_ms, key_length, headers_length"""
_SCANNED: Final = struct.Struct(">IBI20sIQQQ")
"""`_FRAME` and `_BODY` in one, with key_length and headers_length as one number."""
_DECODED: Final = struct.Struct(">IBI32sQQ")
"""The same, with the request id in one piece and without its parts."""
_PRODUCER: Final = struct.Struct(">16sI")
_NO_KEY: Final = 0xFFFFFFFF
_VALUE_ONLY: Final = _NO_KEY << 32
"""key_length and headers_length of a record with neither key nor headers."""
_RESERVED: Final = slice(PRODUCER_ID_BYTES + 4, PRODUCER_ID_BYTES + 8)
"""The reserved bytes of a request id."""
_RESERVED_ZERO: Final = bytes(4)
_UINT32_MAX: Final = 0xFFFFFFFF
_UINT64_MAX: Final = 0xFFFFFFFFFFFFFFFF

assert _FRAME.size + REQUEST_ID_BYTES == HEADER_BYTES
assert _BODY.size == REQUEST_ID_BYTES + FIXED_PAYLOAD_BYTES
assert _SCANNED.size == _DECODED.size == STRUCTURED_BYTES_MIN

_UNIX_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Message(NamedTuple):
    """A message as read from a log.  It is a tuple, because a consumer makes millions a second."""

    topic: TopicName
    partition: PartitionId
    offset: Offset
    """Where its record starts: the message's id in its log."""
    next_offset: Offset
    """Where the next record starts; start here to read on behind this message."""
    timestamp_ms: TimestampMs | None
    """When it was produced, by its producer's clock; None in version 1 records."""
    key: bytes | None
    value: bytes
    headers: Mapping[str, bytes]
    request_id: bytes

    @property
    def timestamp(self) -> datetime | None:
        """`timestamp_ms` as an aware datetime in UTC.

        Raises:
          OverflowError: if a producer wrote a time beyond the year 9999.
        """
        if self.timestamp_ms is None:
            return None
        return _UNIX_ZERO + timedelta(milliseconds=self.timestamp_ms)


@attrs.frozen
class Run:
    """Consecutive records of one producer with consecutive sequences."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    first_sequence: Sequence
    count: int
    start: int
    """Position of the first record in the scanned buffer (bytes)."""
    end: int
    """Position after the last record (bytes, exclusive)."""


class RecordStart(NamedTuple):
    """A record's start, noted so that look-ups need not walk from the beginning."""

    position: int
    """The position in the scanned buffer (bytes)."""
    timestamp_before_ms: int
    """The largest time stamp among all records that were scanned before it; -1 if none has one."""
    count_before: int
    """The number of records that were scanned before it."""


class Request(NamedTuple):
    """The request id of a version 1 record, and its position in the scanned buffer (bytes)."""

    request_id: bytes
    position: int


@attrs.frozen
class Scan:
    """The result of a scan of a buffer, up to its end or the first fault."""

    valid_bytes: int
    """The length of the prefix that consists of whole, valid records."""
    count: int
    """The number of records in that prefix."""
    runs: list[Run]
    """The version 2 records of the prefix, by producer, in order."""
    marks: list[RecordStart]
    """Record starts: the first record, then one about every `INDEX_INTERVAL_BYTES`."""
    timestamp_max_ms: int
    """The largest time stamp in the prefix; -1 if no record has one."""
    fault: RecordError | None
    """Why the scan ended before the end of the buffer; None if there is no fault."""
    requests: list[Request] = attrs.Factory(list)
    """The version 1 records of the prefix, in order, except those with `NO_REQUEST`."""


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
    frame = _FRAME.pack(_LENGTH_MIN_V1 + len(payload), OPAQUE, crc32(payload))
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
        if not 0 <= timestamp_ms <= _UINT64_MAX:
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
        if not 0 <= timestamp_ms <= _UINT64_MAX:
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
        pack_frame, pack_body = _FRAME.pack, _BODY.pack
        parts: list[bytes] = []
        append = parts.append
        sequence: int = first_sequence
        for value, key, headers, timestamp_ms in self._messages:
            if key is None:
                tail = headers + value if headers else value
                body = pack_body(producer, 0, sequence, timestamp_ms, _NO_KEY, len(headers))
            else:
                tail = b"".join((headers, key, value))
                body = pack_body(producer, 0, sequence, timestamp_ms, len(key), len(headers))
            length = _LENGTH_MIN_V2 + len(tail)
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


def scan(buffer: bytes | memoryview, count_max: int = sys.maxsize) -> Scan:
    """Check every record of *buffer*, which begins with a record.

    If there are more than *count_max* records, the scan may end shortly after that number: then
    `count` is greater than *count_max*, and `valid_bytes` says how far the scan came.

    Lengths, versions, checksums and the layout of version 2 payloads are checked, so accepted
    records can be decoded.  It never raises: the first fault ends the scan and is returned.
    """
    view = memoryview(buffer)
    end = len(view)
    last = end - STRUCTURED_BYTES_MIN
    unpack = _SCANNED.unpack_from
    go_on = None if kernels.KERNELS is None else kernels.KERNELS.scan
    runs: list[Run] = []
    marks: list[RecordStart] = []
    requests: list[Request] = []
    fault: RecordError | None = None
    timestamp_max = -1
    position = count = next_mark = stop = 0
    # The current run is in local variables, because this loop is the broker's cost per record.
    run_producer, run_start, run_first, run_next = b"", 0, 0, 0
    try:
        while position < end:
            version = length = 0
            if position <= last:
                length, version, checksum, producer, reserved, sequence, timestamp, lengths = (
                    unpack(buffer, position)
                )
                stop = position + LENGTH_BYTES + length
            if version == STRUCTURED and _LENGTH_MIN_V2 <= length <= _LENGTH_MAX and stop <= end:
                if crc32(view[position + _CHECKSUM_END : stop]) != checksum:
                    raise ChecksumError(_CHECKSUM_TEXT)
                if lengths != _VALUE_ONLY or reserved:
                    key_length, headers_length = divmod(lengths, 1 << 32)
                    _check_layout(length, reserved, key_length, headers_length)
                    if headers_length:
                        start = position + STRUCTURED_BYTES_MIN
                        decode_headers(bytes(view[start : start + headers_length]))
            else:
                stop = check_record(view, position)  # version 1, or it raises the fault
                producer, sequence, timestamp = b"", -1, -1
                request_id = bytes(view[position + _CHECKSUM_END : position + HEADER_BYTES])
                if request_id != NO_REQUEST:
                    requests.append(Request(request_id, position))
            if position >= next_mark:
                if count > count_max:
                    break
                marks.append(RecordStart(position, timestamp_max, count))
                next_mark = position + INDEX_INTERVAL_BYTES
            if timestamp > timestamp_max:
                timestamp_max = timestamp
            if sequence == run_next and producer == run_producer:
                run_next += 1
            else:
                if run_producer:
                    runs.append(_run(run_producer, run_first, run_next, run_start, position))
                run_producer, run_first, run_start = producer, sequence, position
                run_next = sequence + 1
            position = stop
            count += 1
            if go_on is not None and producer and position < end and not lengths & _UINT32_MAX:
                # Over the records that continue the run, up to the next mark.
                position, last_sequence, timestamp_max = go_on(
                    view, position, next_mark, producer, sequence, timestamp_max
                )
                count += last_sequence - sequence
                run_next = last_sequence + 1
    except RecordError as error:
        fault = error
    if run_producer:
        runs.append(_run(run_producer, run_first, run_next, run_start, position))
    return Scan(position, count, runs, marks, timestamp_max, fault, requests)


def check_record(buffer: bytes | memoryview, position: int = 0) -> int:
    """Check the record at *position*; return the position of its end.

    Raises:
      IncompleteRecordError: if the buffer ends before the record does.
      MalformedRecordError: if no encoder writes such a length, version or layout.
      ChecksumError: if its bytes changed.
    """
    view = memoryview(buffer)
    stop = record_end(view, position)
    if stop > len(view):
        raise IncompleteRecordError(
            f"{len(view) - position} bytes of a record of {stop - position} bytes"
        )
    _, version, checksum = _FRAME.unpack_from(view, position)
    covered = position + (HEADER_BYTES if version == OPAQUE else _CHECKSUM_END)
    if crc32(view[covered:stop]) != checksum:
        raise ChecksumError(_CHECKSUM_TEXT)
    if version == OPAQUE:
        return stop
    body = _BODY.unpack_from(view, position + _CHECKSUM_END)
    _, reserved, _, _, key_length, headers_length = body
    _check_layout(stop - position - LENGTH_BYTES, reserved, key_length, headers_length)
    start = position + STRUCTURED_BYTES_MIN
    decode_headers(bytes(view[start : start + headers_length]))
    return stop


def record_end(buffer: bytes | memoryview, position: int) -> int:
    """The end of the record at *position*, by its length alone; it may be beyond the buffer.

    Raises:
      IncompleteRecordError: if the buffer ends within length, version and checksum.
      MalformedRecordError: if no encoder writes such a length or version.
    """
    if len(buffer) - position < _FRAME.size:
        raise IncompleteRecordError(f"{len(buffer) - position} bytes where a record should start")
    length, version, _ = _FRAME.unpack_from(buffer, position)
    if version not in {OPAQUE, STRUCTURED}:
        raise MalformedRecordError(f"record version {version}, known are 1 and 2")
    length_min = _LENGTH_MIN_V1 if version == OPAQUE else _LENGTH_MIN_V2
    if not length_min <= length <= _LENGTH_MAX:
        raise MalformedRecordError(
            f"length {length}, legal in version {version} are {length_min} to {_LENGTH_MAX}"
        )
    return position + LENGTH_BYTES + int(length)


def whole_records_end(buffer: bytes | memoryview, limit_bytes: int | None = None) -> int:
    """The length of the longest prefix of whole records that has at most *limit_bytes* bytes.  But
    the first record, if it is whole, is always included.  Only lengths and versions are looked at.

    Raises:
      MalformedRecordError: if no encoder writes such a length or version.
    """
    end = len(buffer)
    limit = end if limit_bytes is None else min(end, limit_bytes)
    position = 0
    while end - position >= _FRAME.size:
        stop = record_end(buffer, position)
        if stop > end or (stop > limit and position > 0):
            break
        position = stop
    return position


def record_timestamp_ms(buffer: bytes | memoryview, position: int) -> int:
    """The time stamp of the whole record at *position*; -1 for version 1."""
    if buffer[position + LENGTH_BYTES] == OPAQUE:
        return -1
    _, _, _, timestamp_ms, _, _ = _BODY.unpack_from(buffer, position + _CHECKSUM_END)
    return int(timestamp_ms)


def record_key(buffer: bytes | memoryview, position: int) -> bytes | None:
    """The key of the whole record at *position*; None if it has none, as in version 1."""
    if buffer[position + LENGTH_BYTES] == OPAQUE:
        return None
    *_, key_length, headers_length = _BODY.unpack_from(buffer, position + _CHECKSUM_END)
    if key_length == _NO_KEY:
        return None
    begin = position + STRUCTURED_BYTES_MIN + headers_length
    return bytes(buffer[begin : begin + key_length])


def decode(
    buffer: bytes | memoryview, base_offset: Offset, topic: TopicName, partition: PartitionId
) -> list[Message]:
    """The messages of *buffer*, which has whole records from *base_offset* on.  They are checked as
    by `scan`.

    Raises:
      IncompleteRecordError, MalformedRecordError, ChecksumError: for the first record that is not
          valid; the text names its offset.
    """
    view = memoryview(buffer)
    messages: list[Message] = []
    position = stop = 0
    if (compiled := kernels.KERNELS) is not None:
        position = compiled.decode(
            view, 0, base_offset, topic, partition, Message, NO_HEADERS, messages
        )
        if position == len(view):
            return messages
    buffer = bytes(buffer)  # no copy, if it is bytes
    append = messages.append
    new = tuple.__new__
    unpack = _DECODED.unpack_from
    end = len(buffer)
    last = end - STRUCTURED_BYTES_MIN
    offset: int = base_offset + position
    try:
        while position < end:
            version = length = 0
            if position <= last:
                length, version, checksum, request_id, timestamp, lengths = unpack(buffer, position)
                stop = position + LENGTH_BYTES + length
            if version == STRUCTURED and _LENGTH_MIN_V2 <= length <= _LENGTH_MAX and stop <= end:
                if crc32(view[position + _CHECKSUM_END : stop]) != checksum:
                    raise ChecksumError(_CHECKSUM_TEXT)
                at = position + STRUCTURED_BYTES_MIN
                key: bytes | None = None
                headers = NO_HEADERS
                if lengths != _VALUE_ONLY or request_id[_RESERVED] != _RESERVED_ZERO:
                    key_length, headers_length = divmod(lengths, 1 << 32)
                    reserved = int.from_bytes(request_id[_RESERVED])
                    _check_layout(length, reserved, key_length, headers_length)
                    if headers_length:
                        headers = decode_headers(buffer[at : at + headers_length])
                        at += headers_length
                    if key_length != _NO_KEY:
                        key = buffer[at : at + key_length]
                        at += key_length
            else:
                stop = check_record(view, position)  # version 1, or it raises the fault
                at = position + HEADER_BYTES
                timestamp, key, headers = None, None, NO_HEADERS
                request_id = buffer[position + _CHECKSUM_END : at]
            next_offset = base_offset + stop
            fields = (
                topic,
                partition,
                offset,
                next_offset,
                timestamp,
                key,
                buffer[at:stop],
                headers,
                request_id,
            )
            append(new(Message, fields))  # at half the cost of calling Message
            position, offset = stop, next_offset
            if compiled is not None and headers is NO_HEADERS and position < end:
                position = compiled.decode(
                    view, position, base_offset, topic, partition, Message, NO_HEADERS, messages
                )
                offset = base_offset + position
    except RecordError as error:
        raise type(error)(f"record at offset {base_offset + position}: {error}") from None
    return messages


_CHECKSUM_TEXT: Final = "the checksum doesn't match: the bytes changed"


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


def _check_layout(length: int, reserved: int, key_length: int, headers_length: int) -> None:
    """Check that the fixed fields of a version 2 record agree with its *length* field."""
    if reserved:
        raise MalformedRecordError("the reserved bytes of the request id are not zero")
    key_bytes = 0 if key_length == _NO_KEY else key_length
    if _LENGTH_MIN_V2 + key_bytes + headers_length > length:
        raise MalformedRecordError("key and headers are longer than the record")


def _producer(producer_id: bytes, epoch: int, first_sequence: int, last_sequence: int) -> bytes:
    """The producer id and epoch in request ids with sequences from first to last, checked."""
    if len(producer_id) != PRODUCER_ID_BYTES:
        raise MalformedRecordError(
            f"a producer id has {PRODUCER_ID_BYTES} bytes, this one has {len(producer_id)}"
        )
    if not 0 <= epoch <= _UINT32_MAX:
        raise MalformedRecordError(f"producer epoch {epoch} doesn't fit 32 bits")
    if not 0 <= first_sequence <= last_sequence <= _UINT64_MAX:
        raise MalformedRecordError(
            f"sequences {first_sequence} to {last_sequence} don't fit 64 bits"
        )
    return _PRODUCER.pack(producer_id, epoch)


def _run(producer: bytes, first: int, after: int, start: int, end: int) -> Run:
    producer_id, epoch = _PRODUCER.unpack(producer)
    return Run(
        ProducerId(producer_id), ProducerEpoch(epoch), Sequence(first), after - first, start, end
    )
