"""The epochs and producer sequences of records that a follower never gets.

A follower whose log begins behind records that retention has removed never gets these records.  It
may become the leader, and then has to recognise a repetition of one of them, and to know in which
epoch it was written.  So the leader sends it the `PriorState`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, Final

import attrs

from octopi.errors import ProtocolError
from octopi.identifiers import Epoch
from octopi.replication.epoch_history import EpochHistory
from octopi.replication.producer_sequences import ProducerSequences
from octopi.wire.messages import EpochStart, Followed, KnownProducer, KnownRequest

_FAR: Final = 1 << 64


@attrs.frozen
class PriorState:
    """What a log knows of the records before an offset, even if they were removed."""

    epochs: EpochHistory = attrs.field(factory=EpochHistory)
    sequences: ProducerSequences = attrs.field(factory=ProducerSequences)

    @classmethod
    def told(cls, message: Followed) -> PriorState:
        """The prior state in a leader's *message*.

        Raises:
          ProtocolError: if it is not valid.
        """
        sequences = sequences_of(message.producers, message.requests)
        return cls(history_of(message.epochs), sequences)

    def tell(self, message: Followed) -> Followed:
        """*message* with this prior state in it."""
        producers = known_producers(self.sequences.dump())
        requests = [KnownRequest(*one) for one in self.sequences.dump_requests()]
        return attrs.evolve(
            message, epochs=epoch_starts(self.epochs), producers=producers, requests=requests
        )


def known_producers(dumped: Iterable[Any]) -> list[KnownProducer]:
    """What `ProducerSequences.dump` returns, in the form in which messages carry it."""
    return [
        KnownProducer(
            producer_id,
            epoch,
            next_sequence,
            [first for first, _ in batches],
            [offset for _, offset in batches],
        )
        for producer_id, epoch, next_sequence, batches in dumped
    ]


def epoch_starts(epochs: EpochHistory) -> list[EpochStart]:
    """An epoch history in the form in which messages carry it."""
    return [EpochStart(Epoch(epoch), start) for epoch, start in epochs.dump()]


def history_of(rows: Iterable[EpochStart]) -> EpochHistory:
    """The epoch history in a peer's message.

    Raises:
      ProtocolError: if it is not valid.
    """
    entries = [(one.epoch, one.start) for one in rows]
    if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(entries)):
        raise ProtocolError("epochs and their starts grow")
    return EpochHistory.load(entries)


def sequences_of(
    producers: Iterable[KnownProducer], requests: Iterable[KnownRequest]
) -> ProducerSequences:
    """The table of producers in a peer's message.

    Raises:
      ProtocolError: if it is not valid.
    """
    entries = []
    for one in producers:
        if not one.offsets or len(one.first_sequences) != len(one.offsets):
            raise ProtocolError("each batch of a producer has a first sequence and an offset")
        batches = list(zip(one.first_sequences, one.offsets, strict=True))
        ends = [*batches, (one.next_sequence, _FAR)]
        if any(a[0] >= b[0] or a[1] >= b[1] for a, b in pairwise(ends)):
            raise ProtocolError("the batches of a producer and their offsets grow")
        entries.append((one.producer_id, one.epoch, one.next_sequence, batches))
    known = [(one.request_id, one.offset) for one in requests]
    if any(a[1] >= b[1] for a, b in pairwise(known)) or len(dict(known)) < len(known):
        raise ProtocolError("the offsets of version 1 records grow, and each has its own id")
    return ProducerSequences.load(entries, known)
