"""The events of a cluster without a register: each broker notes what it decides and sees itself,
and a broker that is asked collects what all have noted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from math import inf

import attrs
import trio

from octopi.environment import Clock
from octopi.errors import ProtocolError
from octopi.identifiers import BrokerId
from octopi.limits import EVENTS_COLLECT_S, EVENTS_FRESH_S, EVENTS_KEPT_COUNT
from octopi.logger import get_logger
from octopi.roles.broker.ring.peers import RingPeers
from octopi.roles.decider_context import DeciderClient
from octopi.roles.noted_events import NotedEvents
from octopi.security.grants import Grants
from octopi.storage.brief_lock import BriefLock
from octopi.transport.services import Service
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode

_log = get_logger(__name__)

_ANSWERS = frozenset({m.EventList, m.Failure})


@attrs.define(eq=False)
class _NotedBy:
    """What was collected of one broker."""

    life: str = ""
    last: int = 0
    """The number of the newest event, in that life."""


class ClusterEvents:
    """What a broker has collected, in the order in which it did.

    Events that are collected together are in the order of their times, by the clocks of those who
    noted them.  An event that comes later is behind them, whatever its time is.
    """

    def __init__(
        self,
        clock: Clock,
        own: NotedEvents,
        life: str,
        peers: RingPeers,
        others: Callable[[], Mapping[BrokerId, str]],
    ) -> None:
        """*own*: what this broker noted in its *life*, the nonce of its process.  *others*: the
        addresses of the other brokers that are there."""
        self.life = life
        self._clock = clock
        self._own = own
        self._peers = peers
        self._others = others
        self._sources: dict[BrokerId, _NotedBy] = {}
        self._noted_here = 0
        """The number of the last event that was taken over from *own*."""
        self._collected: deque[m.ClusterEvent] = deque(maxlen=EVENTS_KEPT_COUNT)
        self._last = 0
        self._collecting = BriefLock()
        self._fresh_until = -inf

    def own(self, after: int, grants: Grants) -> list[m.ClusterEvent]:
        """What this broker noted itself behind the number *after*, and may be told."""
        return _told(self._own.after(after), grants)

    async def collected(self, after: int, grants: Grants) -> list[m.ClusterEvent]:
        """All events that are known behind the number *after* of this broker's count, and may be
        told.  Brokers that don't answer soon are asked again the next time."""
        async with self._collecting:
            if self._clock.now() >= self._fresh_until:
                await self._collect()
                self._fresh_until = self._clock.now() + EVENTS_FRESH_S
        return _told([one for one in self._collected if one.number > after], grants)

    async def _collect(self) -> None:
        found: list[m.ClusterEvent] = []
        others = self._others()
        self._sources = {one: self._sources.get(one) or _NotedBy() for one in others}
        with self._clock.timeout(EVENTS_COLLECT_S):
            async with trio.open_nursery() as nursery:
                for broker, address in others.items():
                    nursery.start_soon(self._ask, address, self._sources[broker], found)
        for one in self._own.after(self._noted_here):
            self._noted_here = one.number
            found.append(attrs.evolve(one, origin=f"{self.life}/{one.number}"))
        for one in sorted(found, key=lambda one: one.at_ms):
            self._last += 1
            self._collected.append(attrs.evolve(one, number=self._last))

    async def _ask(self, address: str, source: _NotedBy, found: list[m.ClusterEvent]) -> None:
        """Have a broker tell what it has noted since it was asked last."""
        listed = await self._list(address, source.last)
        if listed is not None and listed.life != source.life:
            source.life, asked = listed.life, source.last
            source.last = 0
            if asked:  # it was started anew, and has begun to count again
                listed = await self._list(address, 0)
        if listed is None or listed.life != source.life:
            return
        for one in listed.events:
            source.last = max(source.last, one.number)
            found.append(attrs.evolve(one, origin=f"{listed.life}/{one.number}"))

    async def _list(self, address: str, after: int) -> m.EventList | None:
        answered = trio.Event()
        answers: list[object] = []

        def take(answer: object) -> None:
            answers.append(answer)
            answered.set()

        self._peers.ask(address, m.Ask(1, encode(m.DescribeEvents(1, after))), take)
        await answered.wait()
        match answers[0]:
            case m.Answer(message=data):
                try:
                    listed = decode(data, _ANSWERS)
                except ProtocolError as error:  # it may be of another version
                    why: object = error
                else:
                    if isinstance(listed, m.EventList):
                        return listed
                    why = listed
            case answer:
                why = answer
        _log.sparing(self._clock).info("no events of a broker", at=address, why=str(why))
        return None


class OwnEventsService(Service):
    """Tells another broker what this one noted."""

    def __init__(self, events: ClusterEvents, client: DeciderClient) -> None:
        super().__init__({m.DescribeEvents: self._tell})
        self._events = events
        self._client = client

    def _tell(self, message: m.DescribeEvents) -> None:
        found = self._events.own(message.after, self._client.grants)
        self._client.post(m.EventList(message.request, self._events.life, found))


def _told(events: list[m.ClusterEvent], grants: Grants) -> list[m.ClusterEvent]:
    return [one for one in events if not one.topic or grants.covers(one.topic)]
