"""Asks the register whether a silent broker was replaced.

A leader that hangs keeps its connections open, and the register elects another one a second
later.  So a client that waits for a broker asks the register when a `Suspicion` is due, and leaves
the broker if it was replaced.  It doesn't leave a broker that is only slow, and it doesn't leave
one because the register doesn't answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto

import trio

from octopi.clients.background import background_tasks
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.suspicion import Suspicion
from octopi.errors import ConnectionLostError, OctopiError
from octopi.retry import may_pass
from octopi.wire.messages import PartitionInfo


class LeaderVerdict(Enum):
    """What the register's answer means for a client that waits for a broker."""

    STAY = auto()
    """The broker is still the one to use, or no other broker could be."""
    LEAVE = auto()
    """Another broker is to be used."""
    NO_LEADER = auto()
    """No broker leads now; another one may soon."""


Judge = Callable[[PartitionInfo], LeaderVerdict]
"""What the register's record of a partition means for one broker."""


def judge_leader(address: str, epoch: int, place: PartitionInfo) -> LeaderVerdict:
    """Whether the broker at *address*, which led in *epoch*, still leads."""
    if place.leader_address:
        is_same = place.leader_address == address and place.epoch <= epoch
        return LeaderVerdict.STAY if is_same else LeaderVerdict.LEAVE
    return _without_leader(place)


def judge_reader(address: str, place: PartitionInfo) -> LeaderVerdict:
    """Whether the log can still be read at *address*."""
    if address in place.readers or address == place.leader_address:
        return LeaderVerdict.STAY
    return LeaderVerdict.LEAVE if place.readers else _without_leader(place)


def _without_leader(place: PartitionInfo) -> LeaderVerdict:
    return LeaderVerdict.NO_LEADER if len(place.replicas) > 1 else LeaderVerdict.STAY


class LeaderCheck:
    """Makes the checks of one client."""

    def __init__(self, lookup: LeaderLookup) -> None:
        self._lookup = lookup

    async def judge(self, topic: str, partition: int, judge: Judge) -> LeaderVerdict:
        """The verdict of *judge* on the register's answer; `STAY` if the register can't answer."""
        try:
            return judge(await self._lookup.place(topic, partition))
        except OctopiError as error:
            # An unreachable register proves nothing.  If it knows no such log, the log is gone.
            return LeaderVerdict.STAY if may_pass(error) else LeaderVerdict.LEAVE

    @asynccontextmanager
    async def unless_replaced(
        self, topic: str, partition: int, judge: Judge, suspicion: Suspicion
    ) -> AsyncIterator[None]:
        """Run the block; meanwhile ask the register whenever *suspicion* is due, and cancel the
        block if the broker was replaced.

        Raises:
          ConnectionLostError: if the block was cancelled for that.
        """

        async def ask() -> None:
            while True:
                await suspicion.due()
                verdict = await self.judge(topic, partition, judge)
                if verdict is LeaderVerdict.LEAVE:
                    scope.cancel()
                    return
                if verdict is LeaderVerdict.NO_LEADER:
                    suspicion.no_leader()

        with trio.CancelScope() as scope:
            async with background_tasks() as nursery:
                nursery.start_soon(ask)
                yield
        if scope.cancelled_caught:
            text = f"{topic}/{partition}: the broker is silent, and another one is in its place"
            raise ConnectionLostError(text)
