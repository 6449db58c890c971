"""Records: checking, decoding and walking them, and all names of the format.

The format is in `octopi.record_format`, and `octopi.record_encoding` makes records; their names are
here, too.  Where `octopi.kernels` has compiled code, that does the same for plain records: of
version 2, valid, without headers.

This module only computes; it knows no file, no socket and no clock.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
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
from octopi.limits import INDEX_INTERVAL_BYTES
from octopi.record_encoding import (
    BatchBuilder as BatchBuilder,
    check_values as check_values,
    encode_opaque as encode_opaque,
    producer_id_of as producer_id_of,
    record_size_bytes as record_size_bytes,
    request_id_v1 as request_id_v1,
    request_id_v2 as request_id_v2,
)
from octopi.record_format import (
    BODY,
    CHECKSUM_END,
    DECODED,
    FIXED_PAYLOAD_BYTES as FIXED_PAYLOAD_BYTES,
    FRAME,
    HEADER_BYTES as HEADER_BYTES,
    LENGTH_BYTES as LENGTH_BYTES,
    LENGTH_MAX,
    LENGTH_MIN_V1,
    LENGTH_MIN_V2,
    NO_KEY,
    NO_REQUEST as NO_REQUEST,
    OPAQUE as OPAQUE,
    PRODUCER,
    PRODUCER_ID_BYTES as PRODUCER_ID_BYTES,
    REQUEST_ID_BYTES as REQUEST_ID_BYTES,
    RESERVED,
    RESERVED_ZERO,
    SCANNED,
    STRUCTURED as STRUCTURED,
    STRUCTURED_BYTES_MIN as STRUCTURED_BYTES_MIN,
    UINT32_MAX,
    VALUE_ONLY,
)
from octopi.record_headers import (
    NO_HEADERS as NO_HEADERS,
    decode_headers as decode_headers,
    encode_headers as encode_headers,
)

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
    unpack = SCANNED.unpack_from
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
            if version == STRUCTURED and LENGTH_MIN_V2 <= length <= LENGTH_MAX and stop <= end:
                if crc32(view[position + CHECKSUM_END : stop]) != checksum:
                    raise ChecksumError(_CHECKSUM_TEXT)
                if lengths != VALUE_ONLY or reserved:
                    key_length, headers_length = divmod(lengths, 1 << 32)
                    _check_layout(length, reserved, key_length, headers_length)
                    if headers_length:
                        start = position + STRUCTURED_BYTES_MIN
                        decode_headers(bytes(view[start : start + headers_length]))
            else:
                stop = check_record(view, position)  # version 1, or it raises the fault
                producer, sequence, timestamp = b"", -1, -1
                request_id = bytes(view[position + CHECKSUM_END : position + HEADER_BYTES])
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
            if go_on is not None and producer and position < end and not lengths & UINT32_MAX:
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
    _, version, checksum = FRAME.unpack_from(view, position)
    covered = position + (HEADER_BYTES if version == OPAQUE else CHECKSUM_END)
    if crc32(view[covered:stop]) != checksum:
        raise ChecksumError(_CHECKSUM_TEXT)
    if version == OPAQUE:
        return stop
    body = BODY.unpack_from(view, position + CHECKSUM_END)
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
    if len(buffer) - position < FRAME.size:
        raise IncompleteRecordError(f"{len(buffer) - position} bytes where a record should start")
    length, version, _ = FRAME.unpack_from(buffer, position)
    if version not in {OPAQUE, STRUCTURED}:
        raise MalformedRecordError(f"record version {version}, known are 1 and 2")
    length_min = LENGTH_MIN_V1 if version == OPAQUE else LENGTH_MIN_V2
    if not length_min <= length <= LENGTH_MAX:
        raise MalformedRecordError(
            f"length {length}, legal in version {version} are {length_min} to {LENGTH_MAX}"
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
    while end - position >= FRAME.size:
        stop = record_end(buffer, position)
        if stop > end or (stop > limit and position > 0):
            break
        position = stop
    return position


def record_timestamp_ms(buffer: bytes | memoryview, position: int) -> int:
    """The time stamp of the whole record at *position*; -1 for version 1."""
    if buffer[position + LENGTH_BYTES] == OPAQUE:
        return -1
    _, _, _, timestamp_ms, _, _ = BODY.unpack_from(buffer, position + CHECKSUM_END)
    return int(timestamp_ms)


def record_key(buffer: bytes | memoryview, position: int) -> bytes | None:
    """The key of the whole record at *position*; None if it has none, as in version 1."""
    if buffer[position + LENGTH_BYTES] == OPAQUE:
        return None
    *_, key_length, headers_length = BODY.unpack_from(buffer, position + CHECKSUM_END)
    if key_length == NO_KEY:
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
    unpack = DECODED.unpack_from
    end = len(buffer)
    last = end - STRUCTURED_BYTES_MIN
    offset: int = base_offset + position
    try:
        while position < end:
            version = length = 0
            if position <= last:
                length, version, checksum, request_id, timestamp, lengths = unpack(buffer, position)
                stop = position + LENGTH_BYTES + length
            if version == STRUCTURED and LENGTH_MIN_V2 <= length <= LENGTH_MAX and stop <= end:
                if crc32(view[position + CHECKSUM_END : stop]) != checksum:
                    raise ChecksumError(_CHECKSUM_TEXT)
                at = position + STRUCTURED_BYTES_MIN
                key: bytes | None = None
                headers = NO_HEADERS
                if lengths != VALUE_ONLY or request_id[RESERVED] != RESERVED_ZERO:
                    key_length, headers_length = divmod(lengths, 1 << 32)
                    reserved = int.from_bytes(request_id[RESERVED])
                    _check_layout(length, reserved, key_length, headers_length)
                    if headers_length:
                        headers = decode_headers(buffer[at : at + headers_length])
                        at += headers_length
                    if key_length != NO_KEY:
                        key = buffer[at : at + key_length]
                        at += key_length
            else:
                stop = check_record(view, position)  # version 1, or it raises the fault
                at = position + HEADER_BYTES
                timestamp, key, headers = None, None, NO_HEADERS
                request_id = buffer[position + CHECKSUM_END : at]
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
            # Kernels go on behind a record without headers: the next one has probably none, either.
            if (
                compiled is not None
                and position < end
                and headers is NO_HEADERS
                and timestamp is not None
            ):
                position = compiled.decode(
                    view, position, base_offset, topic, partition, Message, NO_HEADERS, messages
                )
                offset = base_offset + position
    except RecordError as error:
        raise type(error)(f"record at offset {base_offset + position}: {error}") from None
    return messages


_CHECKSUM_TEXT: Final = "the checksum doesn't match: the bytes changed"


def _check_layout(length: int, reserved: int, key_length: int, headers_length: int) -> None:
    """Check that the fixed fields of a version 2 record agree with its *length* field."""
    if reserved:
        raise MalformedRecordError("the reserved bytes of the request id are not zero")
    key_bytes = 0 if key_length == NO_KEY else key_length
    if LENGTH_MIN_V2 + key_bytes + headers_length > length:
        raise MalformedRecordError("key and headers are longer than the record")


def _run(producer: bytes, first: int, after: int, start: int, end: int) -> Run:
    producer_id, epoch = PRODUCER.unpack(producer)
    return Run(
        ProducerId(producer_id), ProducerEpoch(epoch), Sequence(first), after - first, start, end
    )
