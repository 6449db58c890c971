"""Internal logs: the form of their entries, what a log says as a whole, and its snapshots.

A partition keeps in an internal log, such as ``~subscriptions``, what it has to remember beside the
messages of its topics.  The log is replicated with the logs of the topics.  An entry sets the value
of a key, a later entry for the same key replaces it, and an empty value removes the key.

==================  ==============================================================================
part of a record    holds
==================  ==============================================================================
version             2
producer id         the log's name, padded with zero bytes to 16 bytes
producer epoch      the epoch of the leader that appended it
sequence            counts the records of that epoch, from 0.  So the rule for producers refuses
                    what a deposed leader appends, too.
time stamp          when the leader appended it, by its clock (ms since 1970-01-01 UTC)
headers             none
key                 kind, ``/`` and ids, as UTF-8; at most `INTERNAL_KEY_BYTES_MAX`
value               one CBOR map from texts, in its deterministic form (RFC 8949, 4.2.1), at most
                    `INTERNAL_VALUE_BYTES_MAX`; no bytes at all: the key is removed
==================  ==============================================================================

Outdated entries are not taken out one by one: offsets would change.  When a log has grown long, its
leader appends all live entries again, in pieces, between ``x/begin`` and ``x/end``: a *snapshot*.
Other entries may lie between the pieces.  The log from a whole snapshot's begin on says all that
the whole log says: each piece has the newest values at its place in the log, and a key that was
removed or came anew meanwhile has its entry behind the begin.

A snapshot is whole if its end names the begin that lies before it, and both are of one epoch: the
leader of that epoch keeps its whole log, so nothing between them was cut.  A leader that is deposed
in the middle leaves a begin without an end, which does no harm.

Fences of producers (`octopi.replication.producer_fences`) lie in the log ``~subscriptions``, too.
Such an entry has a key of the kind ``f``, a producer id that is made from the key, the epoch that
begins as its producer epoch, and no value.  All that it says, replicas note as its sequence: it is
no live entry, and snapshots don't repeat it.  The same holds for seals of logs
(`octopi.replication.generation_seals`), of the kind ``g``.

This module computes, and has no clock and no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs
import cbor2

from octopi.errors import RecordError, StorageError
from octopi.identifiers import (
    SUBSCRIPTIONS_LOG,
    TOPICS_LOG,
    Epoch,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    Sequence as SequenceNumber,
    TopicId,
    TopicName,
)
from octopi.limits import (
    INTERNAL_KEY_BYTES_MAX,
    INTERNAL_SEGMENT_BYTES_MAX,
    INTERNAL_VALUE_BYTES_MAX,
    SNAPSHOT_BYTES_MIN,
    SNAPSHOT_FACTOR,
)
from octopi.model import TopicOptions, TopicRecord
from octopi.record import PRODUCER_ID_BYTES, BatchBuilder, decode
from octopi.replication.generation_seals import check_seal, is_seal_key, seal_id, seal_key
from octopi.replication.log_leader import LogLeader
from octopi.replication.producer_fences import check_fence, fence_id, fence_key, is_fence_key
from octopi.replication.producer_sequences import producer_of

KINDS: Final[Mapping[str, frozenset[str]]] = {
    SUBSCRIPTIONS_LOG: frozenset("smak"),
    TOPICS_LOG: frozenset("ther"),
}
"""The kinds of keys that each internal log has, beside those of snapshots."""

SNAPSHOT_BEGIN: Final = "x/begin"
SNAPSHOT_END: Final = "x/end"
_SNAPSHOT_KEYS: Final = frozenset({SNAPSHOT_BEGIN, SNAPSHOT_END})
_EPOCH_BYTES: Final = 4
_BEGINNING: Final = Offset(0)

Value = Mapping[str, Any]
"""What an entry says of its key: texts, and what CBOR has a form for."""


class DamagedEntryError(StorageError):
    """An entry of an internal log is not as a program of this version writes it."""

    def __init__(
        self, log: str, partition: PartitionId, offset: Offset, key: str, why: str
    ) -> None:
        super().__init__(
            f"the entry at offset {offset} of {log} in partition {partition}, with the key "
            f"{key!r}, can't be used: {why}; run `octopi-node verify` on the data directory"
        )
        self.offset = offset
        """Where its record begins."""
        self.key = key
        """Its key as text; empty if there is none."""
        self.why = why


def internal_log(name: str, partition: PartitionId) -> TopicRecord:
    """The internal log *name* of *partition*, in the form in which stores of logs know a topic: it
    has no retention by time or size, and asks for no replicas in sync."""
    options = TopicOptions(segment_bytes=INTERNAL_SEGMENT_BYTES_MAX)
    return TopicRecord(name, name, [partition], options)


# --- writing -----------------------------------------------------------------------------


@attrs.frozen
class EncodedEntry:
    """An entry that is to be appended, in its stored form."""

    key: bytes
    value: bytes
    """Empty: the key is removed."""
    fences: ProducerEpoch | None = None
    """The epoch that begins, if this is a fence, or the generation, if it is a seal.  It is
    appended by itself."""


def encode(name: str, key: str, value: Value | None) -> EncodedEntry:
    """An entry of the internal log *name* that sets *key* to *value*, or removes it (None).

    Raises:
      ValueError: if the log has no such key, or an entry can't hold the value.
    """
    return EncodedEntry(_encode_key(name, key), _encode_value(value))


def _encode_key(name: str, key: str) -> bytes:
    kind, slash, ids = key.partition("/")
    if key not in _SNAPSHOT_KEYS and not (slash and ids and kind in KINDS[name]):
        raise ValueError(f"{name} has no keys like that")
    data = key.encode()
    if len(data) > INTERNAL_KEY_BYTES_MAX:
        raise ValueError(
            f"a key has at most {INTERNAL_KEY_BYTES_MAX} bytes, and this one has {len(data)}"
        )
    return data


def _encode_value(value: Value | None) -> bytes:
    if value is None:
        return b""
    if not all(isinstance(name, str) for name in value):
        raise ValueError("the names in a value are texts")
    try:
        data = cbor2.dumps(dict(value), canonical=True)
    except cbor2.CBOREncodeError as error:
        raise ValueError(f"CBOR has no form for the value: {error}") from error
    if len(data) > INTERNAL_VALUE_BYTES_MAX:
        raise ValueError(
            f"a value has at most {INTERNAL_VALUE_BYTES_MAX} bytes, and this one has {len(data)}"
        )
    return data


def fence_entry(topic_id: TopicId, producer: ProducerId, epoch: ProducerEpoch) -> EncodedEntry:
    """The entry from which on records of *producer* with lower epochs than *epoch* are refused in
    the log of a topic."""
    return EncodedEntry(fence_key(topic_id, producer), b"", epoch)


def seal_entry(topic_id: TopicId, generation: int) -> EncodedEntry:
    """The entry from which on the log of a topic takes nothing of lower generations."""
    return EncodedEntry(seal_key(topic_id), b"", ProducerEpoch(generation))


def encode_records(
    name: str,
    entries: Iterable[EncodedEntry],
    epoch: Epoch,
    first_sequence: SequenceNumber,
    timestamp_ms: int,
) -> bytes:
    """The records of *entries*, in their order, as the leader of *epoch* appends them."""
    batch = BatchBuilder()
    for entry in entries:
        batch.add(entry.value, entry.key, timestamp_ms=timestamp_ms)
    return batch.encode(producer_of(name), ProducerEpoch(int(epoch)), first_sequence)


def next_records(
    name: str, leader: LogLeader, entries: Iterable[EncodedEntry], timestamp_ms: int
) -> bytes:
    """The records of *entries* as *leader*, of the internal log *name*, appends them next."""
    given = list(entries)
    if given[0].fences is not None:
        [fence] = given
        batch = BatchBuilder()
        batch.add(b"", fence.key, timestamp_ms=timestamp_ms)
        made_id = seal_id if is_seal_key(fence.key) else fence_id
        return batch.encode(made_id(fence.key), given[0].fences, SequenceNumber(0))
    epoch = ProducerEpoch(int(leader.epoch))
    sequence = leader.log.sequences.next_in_epoch(producer_of(name), epoch)
    return encode_records(name, given, leader.epoch, sequence, timestamp_ms)


# --- reading -----------------------------------------------------------------------------


@attrs.frozen
class StoredEntry:
    """An entry as it was read."""

    key: str
    value: Value | None
    """None: the key was removed."""
    encoded: EncodedEntry
    offset: Offset
    """Where its record begins."""
    end: Offset
    """Where its record ends (exclusive)."""
    epoch: Epoch
    """Of the leader that appended it."""

    @property
    def size_bytes(self) -> int:
        """Of its record."""
        return self.end - self.offset


def decode_records(
    name: str, partition: PartitionId, records: bytes, base: Offset
) -> list[StoredEntry]:
    """The entries in *records*: whole records of the internal log *name*, from *base* on, without
    fences and seals.

    Raises:
      DamagedEntryError: at an entry that isn't as this module writes it.
    """
    try:
        messages = decode(records, base, TopicName(name), partition)
    except RecordError as error:
        raise DamagedEntryError(name, partition, base, "", str(error)) from error
    producer = producer_of(name)
    entries: list[StoredEntry] = []
    for message in messages:
        data = message.key or b""
        key = data.decode(errors="backslashreplace")
        try:
            if is_fence_key(data):
                check_fence(data, message.value, message.request_id)
                continue
            if is_seal_key(data):
                check_seal(data, message.value, message.request_id)
                continue
            # A version 1 record has no key, so it ends here as well.
            if not message.request_id.startswith(producer) or message.headers:
                raise ValueError("it was written by another producer, or in another form")
            if _encode_key(name, key) != data:
                raise ValueError("its key is no text")
            value = _decode_value(message.value)
        except ValueError as error:
            raise DamagedEntryError(name, partition, message.offset, key, str(error)) from error
        entries.append(
            StoredEntry(
                key,
                value,
                EncodedEntry(data, message.value),
                message.offset,
                message.next_offset,
                _epoch_of(message.request_id),
            )
        )
    return entries


def _epoch_of(request_id: bytes) -> Epoch:
    return Epoch(int.from_bytes(request_id[PRODUCER_ID_BYTES : PRODUCER_ID_BYTES + _EPOCH_BYTES]))


def _decode_value(data: bytes) -> Value | None:
    if not data:
        return None
    try:
        value = cbor2.loads(data)
        is_as_written = isinstance(value, dict) and cbor2.dumps(value, canonical=True) == data
    except (cbor2.CBORDecodeError, cbor2.CBOREncodeError, RecursionError) as error:
        raise ValueError(f"its value is no CBOR: {error}") from error
    if not is_as_written or not all(isinstance(name, str) for name in value):
        raise ValueError("its value is no CBOR map from texts in its deterministic form")
    return dict(value)


# --- what a log says as a whole ----------------------------------------------------------


@attrs.frozen
class Snapshot:
    """A whole snapshot in a log."""

    begin: Offset
    """The log from here on says all that the whole log says."""
    end: Offset
    """Where its last record ends (exclusive)."""


class SnapshotFinder:
    """Finds the newest whole snapshot in a log that is read from *start* on.

    It keeps nothing of the entries, so each replica can do that for the segments it has.
    """

    def __init__(self, name: str, partition: PartitionId, start: Offset = _BEGINNING) -> None:
        self.name = name
        self.partition = partition
        self.start = start
        """Where reading began."""
        self.end = start
        """Up to where the log was read (exclusive)."""
        self.snapshot: Snapshot | None = None
        """The newest whole one; None: none was found."""
        self._begin: StoredEntry | None = None

    def read(self, records: bytes) -> list[StoredEntry]:
        """Go on with *records*, which lie in the log from `end` on; return their entries.

        Raises:
          DamagedEntryError: if an entry can't be used; nothing of *records* counts.
        """
        entries = decode_records(self.name, self.partition, records, self.end)
        begin, snapshot = self._begin, self.snapshot
        for entry in entries:
            if entry.key == SNAPSHOT_BEGIN:
                begin = entry
            elif entry.key == SNAPSHOT_END and begin is not None:
                named = (entry.value or {}).get("begin")
                if (named, entry.epoch) == (begin.offset, begin.epoch):
                    snapshot = Snapshot(begin.offset, entry.end)
        self._begin, self.snapshot = begin, snapshot
        self.end = Offset(self.end + len(records))
        return entries


class Fold:
    """The newest value of each key of an internal log that is read from *start* on.

    Invariant: `live_bytes` is the size of the records of the live entries.
    """

    def __init__(self, name: str, partition: PartitionId, start: Offset = _BEGINNING) -> None:
        self.entries: dict[str, StoredEntry] = {}
        """The live ones by key, in the order of the log."""
        self.live_bytes = 0
        """Size of the records of the live entries."""
        self._finder = SnapshotFinder(name, partition, start)

    def read(self, records: bytes) -> None:
        """Go on with *records*: whole records that lie in the log from `end` on.

        Raises:
          DamagedEntryError: if an entry can't be used; nothing of *records* counts.
        """
        for entry in self._finder.read(records):
            if entry.key in _SNAPSHOT_KEYS:
                continue
            known = self.entries.pop(entry.key, None)
            if known is not None:
                self.live_bytes -= known.size_bytes
            if entry.value is not None:
                self.entries[entry.key] = entry
                self.live_bytes += entry.size_bytes

    @property
    def values(self) -> dict[str, Value]:
        """The value of each live key."""
        return {key: one.value for key, one in self.entries.items() if one.value is not None}

    @property
    def end(self) -> Offset:
        """Up to where the log was read (exclusive)."""
        return self._finder.end

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest whole snapshot; None: none was found."""
        return self._finder.snapshot

    @property
    def snapshot_due_at(self) -> Offset:
        """Where the log has to end, at least, for a snapshot to be due, by what was read."""
        begin = self._finder.start if self.snapshot is None else self.snapshot.begin
        return snapshot_due_at(begin, self.live_bytes)

    def pieces(self, size_bytes: int) -> list[list[str]]:
        """All live keys, in pieces; the entries of a piece have about *size_bytes* (at least that
        many, but for the last piece, and one entry more at most)."""
        pieces: list[list[str]] = []
        room = 0
        for key, entry in self.entries.items():
            if room <= 0:
                pieces.append([])
                room = size_bytes
            pieces[-1].append(key)
            room -= entry.size_bytes
        return pieces

    def live(self, keys: Sequence[str]) -> list[EncodedEntry]:
        """The newest entries of those of *keys* that are live, to be appended again."""
        return [self.entries[key].encoded for key in keys if key in self.entries]


# --- snapshots ---------------------------------------------------------------------------


def snapshot_due_at(begin: Offset, live_bytes: int) -> Offset:
    """Where a log has to end, at least, for a snapshot to be due, if the last one began at *begin*
    (without one: where the log starts) and its live entries have *live_bytes*."""
    return Offset(begin + max(SNAPSHOT_BYTES_MIN, SNAPSHOT_FACTOR * live_bytes) + 1)


def begin_entry(name: str) -> EncodedEntry:
    """The first entry of a snapshot."""
    return encode(name, SNAPSHOT_BEGIN, {})


def end_entry(name: str, begin: Offset) -> EncodedEntry:
    """The last entry of the snapshot whose first record begins at *begin*."""
    return encode(name, SNAPSHOT_END, {"begin": int(begin)})


def outdated_end(snapshot: Snapshot | None, highwater: Offset, flushed_end: Offset) -> Offset:
    """Up to where a replica needs nothing of its log, which is committed below *highwater* and on
    the device below *flushed_end*: up to the begin of *snapshot*, the newest in the log, if it is
    both as a whole.  Otherwise a cut, or a power failure, could take the snapshot, too."""
    if snapshot is None or snapshot.end > min(highwater, flushed_end):
        return _BEGINNING
    return snapshot.begin
