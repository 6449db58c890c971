"""The way to a log's leader: what the register says, and while it can't be asked, what brokers say.

Every broker knows the partition table.  One that does not lead answers ``not_leader`` with the
leader's address and epoch, as far as it heard.  Such redirects are followed, but never in
circles: at most two in a row before the register is asked again, an address once in an epoch,
and never one of an older epoch than the newest that is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from octopi.clients.leader_lookup import LeaderLookup, leader_address, partition_of
from octopi.errors import ConnectionLostError, OctopiError, RefusedError, Status, UnreachableError
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import REDIRECTS_IN_A_ROW_MAX
from octopi.wire.messages import TopicInfo


@attrs.frozen
class LeaderCandidate:
    """Where to try."""

    address: str
    epoch: int
    """In which the broker there leads, as far as is known."""


class LeaderRoute:
    """The way to one log, as one asker knows it.

    Invariant: no address is told twice for one epoch.
    """

    def __init__(
        self,
        lookup: LeaderLookup,
        topic: TopicName,
        partition: PartitionId,
        on_described: Callable[[TopicInfo], None] = lambda info: None,
    ) -> None:
        """*on_described* is told what the register says of the topic."""
        self._on_described = on_described
        self._lookup = lookup
        self._topic = topic
        self._partition = partition
        self._info: TopicInfo | None = None
        """What the register said last."""
        self._epoch = 0
        """The newest that anybody spoke of."""
        self._tried: set[str] = set()
        """Addresses that were tried as that epoch's leader."""
        self._in_a_row = 0
        """Redirects followed since the register, or a broker without being told, was asked."""
        self._told = ""
        """Where the last redirect leads, if it is to be followed."""
        self._brokers: deque[str] = deque()
        """Brokers of the topic, of which one after the other is asked while the register is
        away."""

    def redirected(self, error: OctopiError | None) -> bool:
        """A broker refused with *error*.  Whether that says where to go next."""
        self._told = ""
        if not isinstance(error, RefusedError) or error.status != Status.NOT_LEADER:
            return False
        epoch = self._epoch if error.epoch is None else error.epoch
        if not error.address or epoch < self._epoch:
            return False
        self._note(epoch)
        if self._in_a_row >= REDIRECTS_IN_A_ROW_MAX or error.address in self._tried:
            return False
        self._in_a_row += 1
        self._told = error.address
        return True

    def arrived(self) -> None:
        """The broker that was tried leads."""
        self._in_a_row = 0

    def take_told(self) -> str:
        """Where the last redirect leads, if it is to be followed, once; else empty."""
        address, self._told = self._told, ""
        if address:
            self._tried.add(address)
        return address

    def looked_up(self, epoch: int = 0) -> None:
        """The register was asked; *epoch*: what it said, if it answered."""
        self._in_a_row = 0
        if not epoch:
            self._tried.clear()  # those who were tried may know better by now
        self._note(epoch)

    async def find(self, *, create: bool = False) -> LeaderCandidate:
        """Where to try next.

        Raises:
          OctopiError: whatever describing the topic raises, if no broker is known either.
        """
        if address := self.take_told():
            return LeaderCandidate(address, self._epoch)
        try:
            info = await self._lookup.topic(self._topic, create=create, other_than=self._info)
        except (UnreachableError, ConnectionLostError):
            self.looked_up()
            if not self._brokers:
                self._brokers.extend(self._lookup.brokers(self._topic, self._partition))
            if not self._brokers:
                raise
            address = self._brokers[0]
            self._brokers.rotate(-1)
            return LeaderCandidate(address, self._epoch)
        self._info = info
        self._on_described(info)
        self._brokers.clear()
        epoch = partition_of(info, self._partition).epoch
        self.looked_up(epoch)
        address = leader_address(info, self._partition)
        self._tried.add(address)
        return LeaderCandidate(address, epoch)

    def _note(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._tried.clear()
