"""Rows as records of version 2, a batch at a time: the inverse of `octopi.spark.columns`.

For each row, Arrow joins zeros, as room for a record's fixed fields, with the columns.  The result
is all records, one behind the other; numpy then writes the fields into that room.  Only the
checksums take a call for each record.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final
from zlib import crc32

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from octopi.identifiers import ProducerEpoch, ProducerId
from octopi.record import LENGTH_BYTES, STRUCTURED, STRUCTURED_BYTES_MIN
from octopi.spark.frames import NO_KEY, Positions

_CHECKSUM_AT: Final = 5
_CHECKED_FROM: Final = 9
_SEQUENCE_AT: Final = 33
_TIMESTAMP_AT: Final = 41
_KEY_LENGTH_AT: Final = 49
_HEADERS_LENGTH_AT: Final = 53


@attrs.frozen
class EncodedRows:
    """Records, one behind the other."""

    records: bytearray
    bounds: Positions
    """The positions at which records start, and then the end of the last one."""

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.bounds) - 1

    def pieces(self, first_bytes: int, then_bytes: int) -> Iterator[bytes]:
        """All records in pieces.  The first piece ends with the record that reaches *first_bytes*,
        each further piece with the record that reaches *then_bytes* more."""
        start, target = 0, first_bytes
        while start < len(self.records):
            number = int(np.searchsorted(self.bounds, start + target))
            stop = int(self.bounds[min(number, self.count)])
            yield bytes(self.records[start:stop])
            start, target = stop, then_bytes


def record_sizes(values: Any, keys: Any, headers: Any | None) -> Positions:
    """The sizes (bytes) of the records that `encode` would make of these columns."""
    sizes = _lengths(values) + _lengths(keys) + STRUCTURED_BYTES_MIN
    return sizes if headers is None else sizes + _lengths(headers)


def encode(
    values: Any,
    keys: Any,
    headers: Any | None,
    timestamps_ms: NDArray[np.uint64],
    producer_id: ProducerId,
    epoch: ProducerEpoch,
    first_sequence: int,
) -> EncodedRows:
    """Encode rows as records of one producer, with consecutive sequences.

    *values*, *keys* and *headers* (header blocks; None: no headers at all) are Arrow arrays of
    binaries; only keys may be null.
    """
    count = len(values)
    room = pa.scalar(bytes(STRUCTURED_BYTES_MIN), pa.binary())
    parts = [room, *([] if headers is None else [headers]), keys.fill_null(b""), values]
    joined = pc.binary_join_element_wise(*parts, b"")
    bounds = np.frombuffer(joined.buffers()[1], np.int32)[: count + 1].astype(np.int64)
    records = (
        bytearray(memoryview(joined.buffers()[2])[: int(bounds[-1])]) if count else bytearray()
    )
    starts = bounds[:-1]
    bytes_, fours, eights = (_everywhere(records, kind) for kind in ("u1", ">u4", ">u8"))
    fours[starts] = np.diff(bounds) - LENGTH_BYTES
    bytes_[starts + LENGTH_BYTES] = STRUCTURED
    producer = np.frombuffer(producer_id + epoch.to_bytes(4, "big"), ">u4")
    for number, word in enumerate(producer):
        fours[starts + _CHECKED_FROM + 4 * number] = word
    eights[starts + _SEQUENCE_AT] = np.arange(first_sequence, first_sequence + count)
    eights[starts + _TIMESTAMP_AT] = timestamps_ms
    has_key = keys.is_valid().to_numpy(zero_copy_only=False)
    fours[starts + _KEY_LENGTH_AT] = np.where(has_key, _lengths(keys), NO_KEY)
    if headers is not None:
        fours[starts + _HEADERS_LENGTH_AT] = _lengths(headers)
    view = memoryview(records)
    checksums = [
        crc32(view[start + _CHECKED_FROM : stop]) for start, stop in pairwise(bounds.tolist())
    ]
    fours[starts + _CHECKSUM_AT] = checksums
    return EncodedRows(records, bounds)


def _lengths(column: Any) -> Positions:
    """The size of each binary in *column* (bytes); 0 where it is null."""
    lengths: Positions = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
    return lengths


def _everywhere(buffer: bytearray, kind: str) -> NDArray[Any]:
    """A view of *buffer* as numbers of the type *kind*, one starting at each byte."""
    dtype = np.dtype(kind)
    count = max(0, len(buffer) - dtype.itemsize + 1)
    return np.ndarray((count,), dtype, buffer, strides=(1,))
