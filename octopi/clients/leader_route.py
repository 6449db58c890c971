"""How a client finds a log's leader: it asks the register (itself, or through a broker), or brokers
of the topic if the register can't be asked.

Every broker knows the partition table.  A broker that does not lead answers ``not_leader`` with the
address and epoch of the leader, as far as it knows them.  The client follows such redirects, but
never in circles: it follows at most two in a row before it asks the register again, it tries an
address once in an epoch, and it follows no redirect of an older epoch than the newest it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from octopi.clients.leader_lookup import LeaderLookup, leader_address, place_of
from octopi.errors import (
    ConnectionLostError,
    NotReadyError,
    OctopiError,
    RedirectLoopError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import PartitionId, TopicName
from octopi.limits import ADDRESSES_TOLD_MAX, REDIRECTS_IN_A_ROW_MAX
from octopi.wire.messages import TopicInfo

_REDIRECTS: Final = {Status.NOT_LEADER, Status.NO_QUORUM}
"""The statuses with an address to go to: a relay that hears no majority names another one."""


@attrs.frozen
class LeaderCandidate:
    """A broker that may be the leader."""

    address: str
    epoch: int
    """The epoch in which that broker leads, as far as is known."""


class LeaderRoute:
    """The state of one search for the leader of one log.

    Invariant: no redirect to an address that was tried in the same epoch is followed, unless the
    register was asked since and didn't answer.
    """

    def __init__(
        self,
        lookup: LeaderLookup,
        topic: TopicName,
        partition: PartitionId,
        on_described: Callable[[TopicInfo], None] = lambda info: None,
        *,
        follows_generations: bool = False,
    ) -> None:
        """*on_described* is called with what the register says of the topic.
        *follows_generations*: see `LeaderLookup.topic`."""
        self._follows_generations = follows_generations
        self._on_described = on_described
        self._lookup = lookup
        self._topic = topic
        self._partition = partition
        self._info: TopicInfo | None = None
        """The register's last answer."""
        self._epoch = 0
        """The newest epoch in any answer."""
        self._tried: set[str] = set()
        """Addresses that were tried as that epoch's leader."""
        self._in_a_row = 0
        """Redirects that were followed one after the other, since an address came from elsewhere:
        from the register or from the list of brokers."""
        self._told = ""
        """The address of the last redirect, if it is to be followed."""
        self._brokers: deque[str] = deque()
        """Brokers of the topic, which are tried in turn while the register is away."""
        self._asked: deque[str] = deque(maxlen=ADDRESSES_TOLD_MAX)
        """The addresses that were tried since a leader was found."""
        self._is_loop = False
        """Whether the last redirect was not followed because it leads in circles."""

    def redirected(self, error: OctopiError | None) -> bool:
        """A broker refused with *error*.  Return whether that is a redirect to follow."""
        self._told, self._is_loop = "", False
        if not isinstance(error, RefusedError) or error.status not in _REDIRECTS:
            return False
        epoch = self._epoch if error.epoch is None else error.epoch
        if not error.address or epoch < self._epoch:
            return False
        self._note(epoch)
        if self._in_a_row >= REDIRECTS_IN_A_ROW_MAX or error.address in self._tried:
            self._is_loop = True
            return False
        self._in_a_row += 1
        self._told = error.address
        return True

    def reported(self, error: OctopiError) -> OctopiError:
        """The error to tell the program for *error*: a `RedirectLoopError` with the addresses that
        were tried, if it is a redirect and brokers send this client in circles."""
        if not self._is_loop or not isinstance(error, RefusedError):
            return error
        if error.status not in _REDIRECTS:
            return error
        tried = ", ".join(self._asked)
        text = f"{error.args[0]}; brokers name each other as the leader, asked in turn: {tried}"
        loop = RedirectLoopError(text, error.status, error.address, error.epoch)
        loop.tried, loop.__cause__ = tuple(self._asked), error
        return loop

    def arrived(self) -> None:
        """The broker that was tried leads."""
        self._in_a_row = 0
        self._asked.clear()

    def take_told(self) -> str:
        """Return the address of the last redirect, once; empty if none is to be followed."""
        address, self._told = self._told, ""
        if address:
            self._tried.add(address)
            self._asked.append(address)
        return address

    def looked_up(self, epoch: int = 0) -> None:
        """The register was asked; *epoch*: that of its answer; 0: it didn't answer."""
        self._in_a_row = 0
        if not epoch:
            self._tried.clear()  # the brokers that were tried may know more by now
        self._note(epoch)

    async def find(self, *, create: bool = False) -> LeaderCandidate:
        """The broker to try next.

        Raises:
          NotReadyError: if no broker leads the partition now.
          OctopiError: any error of the request to the register; if the register can't be reached,
              only when no broker is known either.
        """
        if address := self.take_told():
            return LeaderCandidate(address, self._epoch)
        try:
            info = await self._lookup.topic(
                self._topic,
                create=create,
                other_than=self._info,
                follows_generations=self._follows_generations,
            )
        except (UnreachableError, ConnectionLostError, NotReadyError):
            # The register is away, or a broker that passes questions on can't reach it.
            self.looked_up()
            if not self._brokers:
                self._brokers.extend(self._lookup.brokers(self._topic, self._partition))
            if not self._brokers:
                raise
            address = self._brokers[0]
            self._brokers.rotate(-1)
            self._asked.append(address)
            return LeaderCandidate(address, self._epoch)
        self._info = info
        self._on_described(info)
        self._brokers.clear()
        epoch = place_of(info, self._partition).epoch
        self.looked_up(epoch)
        address = leader_address(info, self._partition)
        self._tried.add(address)
        self._asked.append(address)
        return LeaderCandidate(address, epoch)

    def _note(self, epoch: int) -> None:
        if epoch > self._epoch:
            self._epoch = epoch
            self._tried.clear()
