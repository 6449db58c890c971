"""What a broker holds of one (topic, partition), as the services that read see it.

It may be a log on the disk (`octopi.roles.broker.local_log`) or a stream in memory
(`octopi.roles.broker.relay.stream_log`); readers are served from both in the same way.
"""

from __future__ import annotations

from typing import Protocol

from octopi.identifiers import Offset, PartitionId, TopicId, TopicName
from octopi.position import Anchor
from octopi.roles.broker.reading_bounds import ReadBound
from octopi.roles.broker.tail_broadcast import ReadLog
from octopi.storage.time_slices import Slices


class LocalStream(ReadLog, Protocol):
    """Committed records, and anchors."""

    partition: PartitionId
    topic_id: TopicId
    delivered_bytes: int
    """The bytes that consumers were sent."""

    @property
    def generation(self) -> int:
        """The generation of the topic that is in force, as far as this broker knows; 0: there never
        was another one than the first."""

    def bound(self, generation: int) -> ReadBound | None:
        """How far a reader may read that knows the topic up to *generation*; None: all."""

    @property
    def name(self) -> TopicName:
        """The topic."""

    @property
    def start(self) -> Offset:
        """The offset of the oldest record that is kept."""

    def read_bytes_min(self, offset: Offset) -> int:
        """The size of the smallest result of `read` from *offset*: one record, if there is one."""

    async def prove(self, offset: Offset) -> None:
        """Check that a record starts at *offset*; to be called when `read` raises NeedsTimeError.

        Raises:
          OctopiError: as for `read`.
        """

    def find(self, at: str, value: int) -> Slices[Offset] | Offset:
        """Answer `octopi.wire.client.FindOffset`.  A search that reads many records comes in
        slices.

        Raises:
          OctopiError: if there is no such offset.
        """

    def find_message(self, identity: bytes) -> Offset:
        """The offset just behind the committed record with that id.

        Raises:
          RefusedError: WRONG_KIND, if records have no ids; INVALID_OPTION, if *identity* is none.
          OffsetOutOfRangeError: if no such record is in memory.
        """

    def anchor_before(self, offset: Offset) -> Anchor:
        """The anchor for *offset*; empty if it isn't known."""

    def anchor_opened(self, offset: Offset, given: str) -> Anchor:
        """The anchor to go on with of a reader that begins at *offset* with the anchor *given*,
        which was checked."""

    def proof(self, offset: Offset, end: Offset) -> bytes:
        """What a reader needs to compute the digests of the records from *offset* to *end*, which
        were read (`octopi.wire.proofs`); empty if there are none.

        Raises:
          RefusedError: WRONG_KIND, if there are no digests.
        """

    def check_anchor(self, offset: Offset, anchor: str) -> None:
        """Check that what a reader has read before *offset* is what is here.

        Raises:
          InvalidOptionError: if *anchor* can't be an anchor for *offset*.
          HistoryForkedError: if there is something else.
          NotLeaderError, NotReadyError: if this broker can't say so (yet).
        """

    def require_end(self) -> None:
        """Check that the highwater mark covers all that was ever acknowledged.

        Raises:
          NotLeaderError: if this broker doesn't lead the partition.
          NotReadyError: if it leads it, and doesn't know that yet.
        """

    def require_reach(self, offset: Offset) -> None:
        """Check that this broker can say whether *offset* is behind the end.

        Raises:
          NotLeaderError, NotReadyError: as for `require_end`.
        """
