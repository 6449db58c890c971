"""Finds the records in a buffer and checks their bytes, a megabyte at a time.

`octopi.record.scan` does this record by record.  Here, a few passes of numpy over the whole buffer
do it for buffers of version 2 records without a fault, which nearly all buffers are.  All other
buffers are given to `octopi.record`, which alone decides what is a fault and where, so both always
agree.

**Lengths.**  A record's start is known only from the record before it.  First all records are
assumed to have the same size, and that is checked.  If it isn't so, every place is found that could
be a record's head (by its version and its reserved zeros), and then those are kept that begin where
the record before ends.

**Checksums.**  CRC-32 is a division by a polynomial, and its register is a linear function of the
input.  In a copy of the buffer, the checksums of the records are written to where they cancel the
register at the end of each record.  If every checksum is right, the register of the whole buffer is
zero; if one is wrong, it isn't.  (Several wrong records cancel each other once in 2**32.)  So one
pass of zlib checks thousands of records.  The copy differs from the buffer as follows:

========================  ==============================================================
bytes of a record         in the copy
========================  ==============================================================
length (4)                the inverted checksum of the record before, little-endian: the
                          value of the register there, if that record is right
version, checksum (5)     zero
first 4 of request id     inverted: a checksum begins with a register full of ones
========================  ==============================================================
"""

from __future__ import annotations

from typing import Final, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from octopi.errors import RecordError
from octopi.identifiers import Offset
from octopi.limits import RECORD_BYTES_MAX
from octopi.record import (
    LENGTH_BYTES,
    STRUCTURED,
    STRUCTURED_BYTES_MIN,
    record_end,
    scan,
    whole_records_end,
)

Positions: TypeAlias = NDArray[np.int64]

_VERSION_AT: Final = 4
_CHECKSUM_AT: Final = 5
_RESERVED_AT: Final = 29
_TIMESTAMP_AT: Final = 41
_KEY_LENGTH_AT: Final = 49
_HEADERS_LENGTH_AT: Final = 53
NO_KEY: Final = 0xFFFFFFFF

_ONES: Final = 0xFFFFFFFF
_AFTER_CHECKSUM: Final = np.uint64(0x000000FFFFFFFF00)
"""Applied to the eight bytes from a record's byte 8 on, read little-endian, with `_KEEP`: the last
byte of the checksum is cleared, and the next four bytes are inverted."""
_KEEP: Final = np.uint64(0xFFFFFFFFFFFFFF00)


class Frames:
    """The whole records of one buffer."""

    __slots__ = ("bounds", "buffer", "is_structured")

    def __init__(self, buffer: bytes, bounds: Positions, is_structured: bool) -> None:
        self.buffer = buffer
        self.bounds = bounds
        """The positions at which records start, and then the end of the last one; shape
        (count + 1,)."""
        self.is_structured = is_structured
        """Whether all records are of version 2."""

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def size_bytes(self) -> int:
        """The size of all whole records; the bytes behind are the beginning of another one."""
        return int(self.bounds[-1])

    @property
    def starts(self) -> Positions:
        """The position at which each record starts; shape (count,)."""
        return self.bounds[:-1]

    @property
    def stops(self) -> Positions:
        """The position at which each record ends (exclusive); shape (count,)."""
        return self.bounds[1:]

    def words(self, at: int) -> NDArray[np.uint32]:
        """The four bytes at byte *at* of every record, as a number; shape (count,)."""
        return _words(self.buffer)[self.starts + at].astype(np.uint32)

    def timestamps_ms(self) -> NDArray[np.uint64]:
        """The time stamps of version 2 records; shape (count,)."""
        high, low = self.words(_TIMESTAMP_AT), self.words(_TIMESTAMP_AT + 4)
        return (high.astype(np.uint64) << np.uint64(32)) | low

    def key_lengths(self) -> NDArray[np.uint32]:
        """The lengths of the keys of version 2 records, `NO_KEY` without a key; shape (count,)."""
        return self.words(_KEY_LENGTH_AT)

    def headers_lengths(self) -> NDArray[np.uint32]:
        """The lengths of the headers of version 2 records; shape (count,)."""
        return self.words(_HEADERS_LENGTH_AT)


def find_records(buffer: bytes) -> Frames:
    """The whole records of *buffer*, which begins with a record.  Only lengths and versions are
    looked at.

    Raises:
      MalformedRecordError: if no record has such a length or version.
    """
    bounds = _of_one_size(buffer)
    if bounds is None:
        bounds = _by_their_heads(buffer)
    if bounds is not None:
        return Frames(buffer, bounds, is_structured=True)
    positions = [0]
    end = whole_records_end(buffer)
    while positions[-1] < end:
        positions.append(record_end(buffer, positions[-1]))
    bounds = np.array(positions, np.int64)
    versions = np.frombuffer(buffer, np.uint8)[bounds[:-1] + _VERSION_AT]
    return Frames(buffer, bounds, bool((versions == STRUCTURED).all()))


def check_records(frames: Frames, base_offset: int) -> None:
    """Check the checksums and layouts of records, as `octopi.record.scan` does.  But the layout
    within headers is checked only if something else is wrong.

    *base_offset*: the offset of the first record, for the text of errors.

    Raises:
      RecordFaultError: for the first record that is not valid; the text names its offset.
    """
    if not len(frames):
        return
    if frames.is_structured and _is_laid_out(frames) and _register_after(frames) == 0:
        return
    found = scan(memoryview(frames.buffer)[: frames.size_bytes])
    if found.fault is not None:
        offset = Offset(base_offset + found.valid_bytes)
        raise RecordFaultError(offset, found.fault)


class RecordFaultError(RecordError):
    """A record is not valid; `offset` is where it starts."""

    def __init__(self, offset: Offset, why: RecordError) -> None:
        super().__init__(f"record at offset {offset}: {why}")
        self.offset = offset
        self.why = why

    def __reduce__(self) -> tuple[type[RecordFaultError], tuple[Offset, RecordError]]:
        return RecordFaultError, (self.offset, self.why)


def _words(buffer: bytes) -> NDArray[np.uint32]:
    """A view of *buffer* as numbers of four bytes, one starting at each byte."""
    count = max(0, len(buffer) - 3)
    return np.ndarray((count,), np.dtype(">u4"), buffer, strides=(1,))


def _of_one_size(buffer: bytes) -> Positions | None:
    """The bounds, if all whole records are of version 2 and as long as the first; else None."""
    if len(buffer) < STRUCTURED_BYTES_MIN or buffer[_VERSION_AT] != STRUCTURED:
        return None
    size = record_end(buffer, 0)
    count = len(buffer) // size
    bounds = np.arange(count + 1, dtype=np.int64) * size
    starts = bounds[:-1]
    same = (_words(buffer)[starts] == size - LENGTH_BYTES) & (
        np.frombuffer(buffer, np.uint8)[starts + _VERSION_AT] == STRUCTURED
    )
    if not same.all():
        return None
    rest = memoryview(buffer)[count * size :]
    return None if whole_records_end(rest) else bounds


def _by_their_heads(buffer: bytes) -> Positions | None:
    """The bounds, if all whole records are of version 2; else None."""
    view = np.frombuffer(buffer, np.uint8)
    last = len(buffer) - STRUCTURED_BYTES_MIN
    if last < 0:
        return None
    words = _words(buffer)
    heads = np.flatnonzero(view[_VERSION_AT : _VERSION_AT + last + 1] == STRUCTURED)
    heads = heads[view[heads] == 0]  # all records are shorter than 16 MiB
    heads = heads[words[heads + _RESERVED_AT] == 0]
    if not len(heads) or heads[0]:
        return None
    stops = heads + LENGTH_BYTES + words[heads].astype(np.int64)
    chain = _chain(heads, stops)
    if chain is None:
        return None
    heads, stops = heads[chain], stops[chain]
    sizes = stops - heads
    if sizes.min() < STRUCTURED_BYTES_MIN or sizes.max() > RECORD_BYTES_MAX:
        return None
    bounds = np.append(heads, stops[-1])
    if stops[-1] > len(buffer):
        bounds = bounds[:-1]
    elif whole_records_end(memoryview(buffer)[int(stops[-1]) :]):
        return None
    return bounds if len(bounds) > 1 else None


def _chain(heads: Positions, stops: Positions) -> Positions | None:
    """The indexes of those *heads* that form a chain from the first: each starts where the one
    before stops.  None if a record of the chain stops, before the last head, where no head is."""
    breaks = np.flatnonzero(stops[:-1] != heads[1:])
    if not len(breaks):
        return np.arange(len(heads))
    pieces: list[Positions] = []
    at = 0
    while at < len(heads):
        following = int(np.searchsorted(breaks, at))
        end = int(breaks[following]) if following < len(breaks) else len(heads) - 1
        pieces.append(np.arange(at, end + 1))
        stop = int(stops[end])
        at = int(np.searchsorted(heads, stop))
        if at < len(heads) and heads[at] != stop:
            return None
    return np.concatenate(pieces)


def _is_laid_out(frames: Frames) -> bool:
    """Whether the reserved bytes, and the lengths of keys and headers, of version 2 records are
    valid."""
    keys, headers = frames.key_lengths(), frames.headers_lengths()
    key_bytes = np.where(keys == NO_KEY, 0, keys).astype(np.int64)
    room = frames.stops - frames.starts - STRUCTURED_BYTES_MIN
    fits = key_bytes + headers <= room
    return bool(fits.all() and not frames.words(_RESERVED_AT).any())


def _register_after(frames: Frames) -> int:
    """The CRC register at the end of the changed copy of the records; 0 if all checksums are
    right."""
    copy = np.empty(frames.size_bytes + 8, np.uint8)
    copy[:-8] = np.frombuffer(frames.buffer, np.uint8, frames.size_bytes)
    starts, stops = frames.starts, frames.stops
    eights: NDArray[np.uint64] = np.ndarray((len(copy) - 7,), np.dtype("<u8"), copy, strides=(1,))
    cancelling = (frames.words(_CHECKSUM_AT) ^ np.uint32(_ONES)).astype(np.uint64)
    behind = eights[starts + 8]
    eights[starts[0]] = 0
    eights[stops] = cancelling  # before each next record, and behind the last
    eights[starts + 8] = (behind & _KEEP) ^ _AFTER_CHECKSUM
    return crc32(copy[: frames.size_bytes + LENGTH_BYTES].data, _ONES) ^ _ONES
