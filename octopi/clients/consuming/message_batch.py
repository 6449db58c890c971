"""The messages that arrived together, decoded when and as far as the program asks for them.

Pure.  A batch keeps the bytes of its records.  It is handed out undecoded, so a program that wants
only values pays for nothing else, and pays in its own thread.  Records are checked where they are
decoded, and a batch ends before a damaged one: its consumer asks for `damage` before it hands out
more, and raises it then.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar, overload

from octopi.errors import RecordError
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.record import Message, check_record, decode, scan
from octopi.record_columns import OffsetArray, RecordColumns, columns

_SMALL_BYTES: Final = 1024
"""A batch with no more records than this is decoded at once: at the end of a log most have one
record, and a check of that would cost as much."""

_T = TypeVar("_T")


class MessageBatch(Sequence[Message]):
    """Consecutive messages of one log, as they arrived.  Handed out by `Consumer.batches`.

    It is a sequence of its messages.  For their values alone, `values` is quicker, since it decodes
    nothing else.

    The bytes of its records stay as they are as long as there is the batch: it remains valid after
    later ones were handed out, after the consumer's block, and in other threads.  A batch that is
    kept keeps the buffer of half a megabyte in which it was received.  Values, keys and headers are
    copies, so one that is kept doesn't keep the batch.  What was decoded is kept by the
    batch and given again by the next call, so don't change these lists.
    """

    __slots__ = (
        "_columns",
        "_is_checked",
        "_messages",
        "_records",
        "damage",
        "offset",
        "partition",
        "topic",
    )

    def __init__(
        self,
        topic: TopicName,
        partition: PartitionId,
        offset: Offset,
        records: bytes | memoryview,
        messages: list[Message] | None = None,
    ) -> None:
        """*messages*: what *records* were decoded to; None: they weren't yet."""
        self.topic: TopicName = topic
        """The topic of all its messages."""
        self.partition: PartitionId = partition
        """The partition of all its messages."""
        self.offset: Offset = offset
        """The offset of the first message."""
        self._records = records
        self._messages = messages
        self._columns: RecordColumns | None = None
        self._is_checked = messages is not None
        self.damage: RecordError | None = None
        """Why the batch ends before the records do that arrived; None: it has all of them, or was
        not checked yet, as it is by each look at what it has."""

    def __repr__(self) -> str:
        return f"<batch of {self.topic}/{self.partition} from {self.offset} to {self.next_offset}>"

    def __reduce__(self) -> tuple[object, ...]:
        records = bytes(self._records)  # a view can't be pickled
        return MessageBatch, (self.topic, self.partition, self.offset, records, self._messages)

    # --- what it has -------------------------------------------------------------------

    @property
    def next_offset(self) -> Offset:
        """The offset behind the last message; start here to read on behind the batch."""
        if not self._is_checked:
            self._check()
        return Offset(self.offset + len(self._records))

    def values(self) -> list[bytes]:
        """The values of the messages."""
        return self._decoded_columns().values

    @property
    def offsets(self) -> OffsetArray:
        """The offset of each message, as 64-bit numbers (type ``q``): one for each of `values`."""
        return self._decoded_columns().offsets

    def messages(self) -> list[Message]:
        """The messages, as iterating over the consumer gives them."""
        if (messages := self._messages) is None:
            try:
                messages = decode(self._records, self.offset, self.topic, self.partition)
            except RecordError:
                self._check()
                messages = decode(self._records, self.offset, self.topic, self.partition)
            self._messages, self._is_checked = messages, True
        return messages

    def decoded(self, decode_records: Callable[[bytes | memoryview, Offset], _T]) -> _T:
        """What *decode_records* makes of the encoded records and the offset of the first one: for
        decoders of other forms.

        It has to check every record as `octopi.record.scan` does, and to raise a `RecordError` if
        one is not valid.  If that is so, it is called again with the valid records before that one.
        What it makes may refer to the records; then it keeps their buffer, as the batch does.
        """
        try:
            made = decode_records(self._records, self.offset)
        except RecordError:
            self._check()
            if self.damage is None:
                raise
            made = decode_records(self._records, self.offset)
        self._is_checked = True
        return made

    # --- as a sequence -----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._decoded_columns().values if self._messages is None else self._messages)

    def __bool__(self) -> bool:
        return bool(self._records)

    def __iter__(self) -> Iterator[Message]:
        return iter(self.messages())

    @overload
    def __getitem__(self, index: int) -> Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...

    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        return self.messages()[index]

    # --- for its consumer --------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether not even the first record is valid."""
        if not self._is_checked:
            if len(self._records) <= _SMALL_BYTES:
                self.messages()
            else:
                try:
                    check_record(self._records)
                except RecordError:
                    self._check()
        return not self._records

    def rest(self, messages: list[Message]) -> MessageBatch:
        """The batch of *messages*, which are the last ones of this batch, or stand for them; there
        is at least one."""
        start = messages[0].offset
        records = self._records[start - self.offset :]
        return MessageBatch(self.topic, self.partition, start, records, messages)

    def _decoded_columns(self) -> RecordColumns:
        if self._columns is None:
            if self._messages is None:
                self._columns = self.decoded(columns)
            else:
                values = [one.value for one in self._messages]
                self._columns = RecordColumns(
                    values, array("q", [one.offset for one in self._messages])
                )
        return self._columns

    def _check(self) -> None:
        """Look for a damaged record, unless the records were decoded; end the batch before it."""
        if self._is_checked:
            return
        try:
            self._columns = columns(self._records, self.offset)
        except RecordError as error:
            self.damage = error  # first: another thread may find the records cut already
            self._records = self._records[: scan(self._records).valid_bytes]
        self._is_checked = True
