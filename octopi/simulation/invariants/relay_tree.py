"""All transactions that were ever published of one stream in memory, as a tree.

Digests cover all that lies before, as commits of git do, so a digest names a whole history.  They
are computed here from what was published, whatever relays say.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import sha256
from typing import Final

import attrs

from octopi.identifiers import Offset, PartitionId, TopicId
from octopi.record import scan
from octopi.relay.digest import Digest, first_digest
from octopi.relay.message_ids import MessageId
from octopi.relay.messages import RelayIncoming
from octopi.simulation.kernel.world import Event

_NO_ID: Final = MessageId(b"")


@attrs.frozen(eq=False)
class Published:
    """A transaction, and all that lies before it."""

    digest: Digest
    before: Published | None
    """None: this is the empty stream."""
    offset: Offset
    end: Offset
    id: MessageId
    records: bytes
    event: Event | None
    """When it was published first."""


class StreamTree:
    """The transactions of the stream of *topic_id*, and which of them were ever committed."""

    def __init__(self, topic_id: TopicId, partition: PartitionId) -> None:
        self.topic_id = topic_id
        first = first_digest(topic_id, partition)
        nothing = Published(first, None, Offset(0), Offset(0), _NO_ID, b"", None)
        self.by_digest: dict[Digest, Published] = {first: nothing}
        self.tip = nothing
        """The end of what is committed."""
        self.committed: set[Digest] = {first}
        """The digests of all places that were ever committed, also of what was lost since."""
        self.guarded_end = Offset(0)
        """What lies before it was committed when so many relays were lost that it may be lost."""
        self._ids: dict[MessageId, Published] = {}

    def publish(self, message: RelayIncoming, event: Event) -> str:
        """A sequencer publishes *message*; return what is wrong with it, or an empty text."""
        before = self.by_digest.get(message.digest_before)
        if before is None:
            return "goes on from a history that was never published"
        if before.end != message.offset:
            return f"has its place at {message.offset}, and what is before it ends at {before.end}"
        digest = _digest(before.digest, message.id, message.records)
        if digest in self.by_digest:
            return ""
        end = Offset(message.offset + len(message.records))
        one = Published(digest, before, before.end, end, message.id, message.records, event)
        self.by_digest[digest] = one
        same = self._ids.setdefault(message.id, one)
        if same.records != message.records:
            return f"has the id {message.id.hex()}, which another transaction has"
        return ""

    def at(self, digest: Digest, end: int) -> Published | None:
        """The place with that *digest*, if it ends there; None: nobody can have it."""
        found = self.by_digest.get(digest)
        return found if found is not None and found.end == end else None

    def kept_from(self, count: int) -> Offset:
        """Where the last *count* committed transactions begin."""
        kept = list(itertools.islice(self._back(self.tip, None), count))
        return kept[-1].offset if kept else Offset(0)

    def is_before(self, one: Published, other: Published) -> bool:
        """Whether *one* is *other*, or part of the history before it."""
        at: Published | None = other
        while at is not None and at.end > one.end:
            at = at.before
        return at is one

    def common(self, one: Published, other: Published) -> Published:
        """The last place that both have."""
        while one is not other:
            if one.end >= other.end and one.before is not None:
                one = one.before
            elif other.before is not None:
                other = other.before
        return one

    def commit(self, tip: Published) -> str:
        """More is committed, up to *tip*, which has the present one before it; return what is wrong
        with it, or an empty text."""
        ids = {one.id for one in self._back(self.tip, None)}
        sequences = self._sequences()
        for one in reversed(list(self._back(tip, self.tip))):
            self.committed.add(one.digest)
            if one.id in ids:
                return f"has the id {one.id.hex()} twice"
            ids.add(one.id)
            for run in scan(one.records).runs:
                producer = run.producer_id, run.producer_epoch
                expected = sequences.get(producer)
                if expected is not None and run.first_sequence < expected:
                    return (
                        f"has sequence {run.first_sequence} of producer {producer[0]!r} at "
                        f"{one.offset}, and {expected} comes next"
                    )
                sequences[producer] = run.first_sequence + run.count
        self.tip = tip
        return ""

    def _sequences(self) -> dict[object, int]:
        found: dict[object, int] = {}
        for one in self._back(self.tip, None):
            for run in scan(one.records).runs:
                found.setdefault(
                    (run.producer_id, run.producer_epoch), run.first_sequence + run.count
                )
        return found

    @staticmethod
    def _back(last: Published, until: Published | None) -> Iterator[Published]:
        """*last*, and what lies before it, down to *until*, which is not among them."""
        at: Published | None = last
        while at is not None and at is not until and at.before is not None:
            yield at
            at = at.before


def _digest(before: Digest, message: MessageId, records: bytes) -> Digest:
    """The digest behind a transaction (docs/relay.md): not computed by the code of relays, which
    may be wrong."""
    return Digest(sha256(before + message + len(records).to_bytes(8, "big") + records).digest())
