"""Whether a broker that says nothing is still the right one: the register knows.

A leader that hangs keeps its connections open, and the register appoints another one a
second later.  So whoever waits for a broker asks the register, when a `Doubt` says so, and
leaves the broker if another one has taken its place: never because it is slow, nor because
the register can't be asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum, auto

import trio

from octopi.clients.background import background_tasks
from octopi.clients.doubts import Doubt
from octopi.clients.leader_lookup import LeaderLookup
from octopi.clients.retrying import may_pass
from octopi.errors import ConnectionLostError, OctopiError
from octopi.wire.messages import PartitionInfo


class Verdict(Enum):
    """What the register's word means for whoever waits for a broker."""

    STAY = auto()
    """It is the right one, or nobody else can be."""
    LEAVE = auto()
    """Another one is."""
    NOBODY = auto()
    """Nobody is now; another one may be soon."""


Judge = Callable[[PartitionInfo], Verdict]
"""What it means for one broker that a partition is at a place."""


def judge_leader(address: str, epoch: int, place: PartitionInfo) -> Verdict:
    """Whether the leader at *address*, found there in *epoch*, still is the leader."""
    if place.leader_address:
        is_same = place.leader_address == address and place.epoch <= epoch
        return Verdict.STAY if is_same else Verdict.LEAVE
    return _without_anybody(place)


def judge_reader(address: str, place: PartitionInfo) -> Verdict:
    """Whether the log can still be read at *address*."""
    if address in place.readers or address == place.leader_address:
        return Verdict.STAY
    return Verdict.LEAVE if place.readers else _without_anybody(place)


def _without_anybody(place: PartitionInfo) -> Verdict:
    return Verdict.NOBODY if len(place.replicas) > 1 else Verdict.STAY


class SilentBrokers:
    """Asks about them."""

    def __init__(self, lookup: LeaderLookup) -> None:
        self._lookup = lookup

    async def judge(self, topic: str, partition: int, judge: Judge) -> Verdict:
        """What *judge* makes of what the register says."""
        try:
            return judge(await self._lookup.place(topic, partition))
        except OctopiError as error:
            # A register that can't be asked proves nothing; one that knows no such log does.
            return Verdict.STAY if may_pass(error) else Verdict.LEAVE

    @asynccontextmanager
    async def unless_replaced(
        self, topic: str, partition: int, judge: Judge, doubt: Doubt
    ) -> AsyncIterator[None]:
        """Ask when *doubt* is due, and cancel the block if the answer is to leave.

        Raises:
          ConnectionLostError: if it was cancelled for that.
        """

        async def ask() -> None:
            while True:
                await doubt.due()
                verdict = await self.judge(topic, partition, judge)
                if verdict is Verdict.LEAVE:
                    scope.cancel()
                    return
                if verdict is Verdict.NOBODY:
                    doubt.nobody_there()

        with trio.CancelScope() as scope:
            async with background_tasks() as nursery:
                nursery.start_soon(ask)
                yield
        if scope.cancelled_caught:
            text = f"{topic}/{partition}: the broker is silent, and another one is in its place"
            raise ConnectionLostError(text)
