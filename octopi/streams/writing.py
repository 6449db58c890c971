"""Writes to a stream: their headers, and whether the stream takes them.

The log itself has all state that this needs, so it survives what the log survives.  A write is a
batch of records of one producer.  The first record of the batch has the header `MARK`: JSON with
what the producers' table of a log (`octopi.replication.producer_sequences`) doesn't hold, which is
the epoch and the sequence that HTTP's client counts (the table counts records), and the newest
``Stream-Seq``.  The batch that closes a stream is that of a producer of its own, `CLOSER`, and no
batch comes after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import attrs

from octopi.errors import Status
from octopi.identifiers import ProducerId, TopicId
from octopi.record import PRODUCER_ID_BYTES, Message
from octopi.replication.producer_sequences import CLOSER as CLOSER
from octopi.streams.definitions import is_closing
from octopi.streams.problems import StreamProblem, conflict, invalid

MARK: Final = "octopi-http"
"""The record header with what a write noted."""

PRODUCER_ID: Final = "producer-id"
PRODUCER_EPOCH: Final = "producer-epoch"
PRODUCER_SEQ: Final = "producer-seq"
STREAM_SEQ: Final = "stream-seq"
CLOSED_TRUE: Final = ("stream-closed", "true")

_NUMBER_MAX: Final = (1 << 53) - 1
_NUMBER: Final = re.compile(r"[0-9]{1,16}", re.ASCII)
_ID_BYTES_MAX: Final = 500
_SEQ_BYTES_MAX: Final = 500


@attrs.frozen
class HttpProducer:
    """The producer that the headers of a request name."""

    name: str
    epoch: int
    sequence: int
    """Counts the requests of an epoch, from 0."""


@attrs.frozen
class Write:
    """What a request wants to be written."""

    values: list[bytes]
    """The values of its records; none: it only closes the stream."""
    producer: HttpProducer | None = None
    stream_seq: str | None = None
    closes: bool = False
    is_initial: bool = False
    """Whether it is the initial content of a stream, written only into an empty one, once."""
    copied: list[Message] = attrs.field(factory=list)
    """The messages that a fork begins with, before `values`."""


@attrs.frozen
class WriteNote:
    """What the header `MARK` of the first record of a write notes."""

    producer: str = ""
    """Empty: the write named none."""
    epoch: int = 0
    sequence: int = 0
    stream_seq: str | None = None
    """The newest ``Stream-Seq`` of the stream, of this or an earlier write."""
    is_initial: bool = False

    def encode(self) -> bytes:
        """The value of the header."""
        fields: dict[str, Any] = {}
        if self.producer:
            fields = {"producer": self.producer, "epoch": self.epoch, "seq": self.sequence}
        if self.stream_seq is not None:
            fields["stream_seq"] = self.stream_seq
        if self.is_initial:
            fields["initial"] = True
        return json.dumps(fields, separators=(",", ":")).encode()


def noted(headers: Mapping[str, bytes]) -> WriteNote | None:
    """What the header of a record notes; None: no write over HTTP begins there."""
    value = headers.get(MARK)
    if value is None:
        return None
    try:
        fields = json.loads(value)
        stream_seq = fields.get("stream_seq")
        return WriteNote(
            str(fields.get("producer", "")),
            int(fields.get("epoch", 0)),
            int(fields.get("seq", 0)),
            None if stream_seq is None else str(stream_seq),
            bool(fields.get("initial", False)),
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None  # another client wrote that


def write_of(headers: Mapping[str, str], values: list[bytes]) -> Write:
    """The write of *values* that a request with *headers* wants.

    Raises:
      StreamProblem: if its headers are malformed, or contradict each other.
    """
    stream_seq = headers.get(STREAM_SEQ)
    if stream_seq is not None and not 0 < len(stream_seq) <= _SEQ_BYTES_MAX:
        raise invalid(f"Stream-Seq has 1 to {_SEQ_BYTES_MAX} characters")
    return Write(values, _producer_of(headers), stream_seq, is_closing(headers))


def _producer_of(headers: Mapping[str, str]) -> HttpProducer | None:
    given = [headers.get(one) for one in (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ)]
    if given == [None, None, None]:
        return None
    name, epoch, sequence = given
    if name is None or epoch is None or sequence is None:
        raise invalid("Producer-Id, Producer-Epoch, Producer-Seq need each other: give all three")
    if not 0 < len(name) <= _ID_BYTES_MAX:
        raise invalid(f"Producer-Id has 1 to {_ID_BYTES_MAX} characters")
    return HttpProducer(name, _number("Producer-Epoch", epoch), _number("Producer-Seq", sequence))


def _number(header: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > _NUMBER_MAX:
        raise invalid(f"{header} is a number from 0 to {_NUMBER_MAX}, not {text[:40]!r}")
    return int(text)


def log_producer(topic_id: TopicId, name: str) -> ProducerId:
    """The producer in the log for the producer *name* of requests; empty: for those without."""
    digest = sha256(f"{topic_id}/{name}".encode()).digest()
    return ProducerId(digest[:PRODUCER_ID_BYTES])


@attrs.frozen
class Known:
    """What the log holds that decides about a write."""

    of_producer: WriteNote | None
    """What the newest write of the write's producer noted; None: there was none."""
    closing: WriteNote | None
    """What the write noted that closed the stream; None: the stream is open."""
    stream_seq: str | None
    """The newest ``Stream-Seq``."""


@attrs.frozen
class AlreadyWritten:
    """The write is in the log already: it is acknowledged, and not written again."""

    of_closer: bool = False
    """Whether the stream is closed."""
    sequence: int | None = None
    """The highest sequence of its producer that the log has."""


def judge(write: Write, known: Known) -> AlreadyWritten | None:
    """Whether a stream takes *write*; None: it does.

    Raises:
      StreamProblem: if it doesn't.
    """
    producer, last = write.producer, known.of_producer
    closing = known.closing
    is_closer = closing is not None and producer is not None and closing.producer == producer.name
    if is_closer:
        last = closing
    if producer is not None and last is not None and producer.epoch < last.epoch:
        raise StreamProblem(
            f"epoch {producer.epoch} of the producer was replaced by {last.epoch}",
            Status.PRODUCER_FENCED,
            ("producer-epoch", str(last.epoch)),
        )
    if (
        producer is not None
        and last is not None
        and producer.epoch == last.epoch
        and producer.sequence <= last.sequence
    ):
        return AlreadyWritten(closing is not None, last.sequence)
    if closing is not None:
        if not write.values and producer is None:
            return AlreadyWritten(of_closer=True)
        raise StreamProblem("the stream is closed", Status.TOPIC_CLOSED, CLOSED_TRUE)
    if producer is not None:
        _check_next(producer, last)
    _check_stream_seq(write.stream_seq, known.stream_seq)
    return None


def _check_next(producer: HttpProducer, last: WriteNote | None) -> None:
    """Raise StreamProblem if the producer's last write wasn't *last*."""
    if last is None or producer.epoch > last.epoch:
        if producer.sequence == 0:
            return
        if last is not None:
            raise invalid(f"a new epoch of a producer begins with sequence 0: {producer.sequence}")
        expected = 0
    else:
        expected = last.sequence + 1
    if producer.sequence > expected:
        raise StreamProblem(
            f"sequence {expected} of the producer comes next, not {producer.sequence}",
            Status.SEQUENCE_GAP,
            ("producer-expected-seq", str(expected)),
            ("producer-received-seq", str(producer.sequence)),
        )


def _check_stream_seq(given: str | None, newest: str | None) -> None:
    if given is not None and newest is not None and given.encode() <= newest.encode():
        raise conflict(f"Stream-Seq has to grow: the newest is {newest[:80]!r}")
