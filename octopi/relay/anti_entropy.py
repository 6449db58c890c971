"""The repair of one stream, by phases: find the last point that is right, fetch what follows it,
build it beside what is held, compare the digest, and only then take it over.

While a stream is under repair, its relay writes nothing in it and delivers nothing of it, so it
counts nowhere.  Other streams go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum, unique
from typing import Any, Final

from octopi.identifiers import BrokerId, Offset
from octopi.limits import (
    RELAY_FETCH_S,
    RELAY_POINTS_MAX,
    RELAY_REPAIR_TRIES,
)
from octopi.relay.buffer import RelayTransaction, StreamPoint
from octopi.relay.digest import next_digest
from octopi.relay.effects import SendToRelay
from octopi.relay.messages import (
    RelayCompare,
    RelayCompared,
    RelayFetch,
    RelayIncoming,
    RelayPart,
)
from octopi.relay.stream import RelayStream
from octopi.relay.timelines import RelayEpoch


@unique
class RepairPhase(Enum):
    """What a repair is doing."""

    IDLE = "idle"
    LOCATE = "locate"
    FETCH = "fetch"
    REBUILD = "rebuild"
    VERIFY = "verify"
    RELEASE = "release"


_NEXT: Final = {
    RepairPhase.IDLE: {RepairPhase.LOCATE},
    RepairPhase.LOCATE: {RepairPhase.LOCATE, RepairPhase.FETCH},
    RepairPhase.FETCH: {RepairPhase.LOCATE, RepairPhase.REBUILD},
    RepairPhase.REBUILD: {RepairPhase.VERIFY},
    RepairPhase.VERIFY: {RepairPhase.LOCATE, RepairPhase.RELEASE},
    RepairPhase.RELEASE: {RepairPhase.IDLE},
}


class RepairCounts:
    """What repairs of one relay partition did on one relay.

    Streams that are right when a repair of them begins, as most at an epoch's, are not counted.
    """

    def __init__(self) -> None:
        working = [one for one in RepairPhase if one is not RepairPhase.IDLE]
        self.entered = dict.fromkeys(working, 0)
        """How often a repair entered each phase."""
        self.seconds = dict.fromkeys(working, 0.0)
        """How long repairs were in each phase, those that have left it."""
        self.failed = 0
        """Repairs that found no relay that could help."""


class StreamRepair:
    """Brings one stream to a *target*, the point at which a source says that it ends.

    Invariant: nothing is taken over whose digest is not that of the target.
    """

    def __init__(
        self,
        stream: RelayStream,
        epoch: RelayEpoch,
        target: StreamPoint,
        sources: Sequence[BrokerId],
        *,
        keeps_delivered: bool,
        counts: RepairCounts | None = None,
    ) -> None:
        """*epoch*: of which the sources are a part.  *keeps_delivered*: the stream is of the same
        timeline there, so what was delivered is right.  *counts*: what it does is added there."""
        self.stream, self.epoch, self.target = stream, epoch, target
        self.phase = RepairPhase.IDLE
        self.has_failed = False
        """Whether no source could help."""
        self.contradicts = False
        """Whether what was delivered is not part of the source's history."""
        self.queue: deque[RelayIncoming] = deque()
        """What came in meanwhile, oldest first."""
        self._queued_bytes = 0
        self._sources = list(sources)
        self._source = 0
        self._tries = 0
        self._keeps_delivered = keeps_delivered
        self._candidates: list[StreamPoint] = []
        """Places of the own buffer, one of which is the last right one."""
        self._asked: list[StreamPoint] = []
        self._point: StreamPoint | None = None
        """Behind which the source's transactions go."""
        self._with_producers = False
        self._producers: tuple[Any, ...] | None = None
        self._side: list[RelayTransaction] = []
        self._asked_at = 0.0
        self._counts = counts or RepairCounts()
        self._in_phase_since = 0.0

    @property
    def source(self) -> BrokerId:
        """Who is asked."""
        return self._sources[self._source % len(self._sources)]

    @property
    def is_verified(self) -> bool:
        """Whether it only has to be released."""
        return self.phase is RepairPhase.VERIFY

    def _to(self, phase: RepairPhase, now: float) -> None:
        assert phase in _NEXT[self.phase], f"{self.phase} to {phase}"
        if self.phase is not RepairPhase.IDLE:
            self._counts.seconds[self.phase] += now - self._in_phase_since
        if phase is not RepairPhase.IDLE:
            self._counts.entered[phase] += 1
        self.phase, self._in_phase_since = phase, now

    def _fail(self, *, contradicts: bool = False) -> None:
        self.has_failed = True
        self.contradicts = self.contradicts or contradicts
        self._counts.failed += 1

    # --- events --------------------------------------------------------------------------

    def begin(self, now: float) -> list[SendToRelay]:
        """Begin, or begin anew."""
        buffer = self.stream.buffer
        is_right = buffer.digest_at(self.target.end) == self.target.digest
        if is_right and self.phase is RepairPhase.IDLE:
            self._counts = RepairCounts()  # nothing is repaired
        self._to(RepairPhase.LOCATE, now)
        self._side, self._producers, self._with_producers = [], None, False
        low = self._lowest
        if self._keeps_delivered and self.target.end < self.stream.highwater:
            self._fail(contradicts=True)
            return []
        if is_right:
            return self._located(self.target, now)
        self._candidates = buffer.points(low, self.target.end)
        return self._compare(now)

    @property
    def _lowest(self) -> Offset:
        """The least offset up to which something may be kept."""
        if self._keeps_delivered:
            return self.stream.highwater
        return self.stream.buffer.start.end

    def queue_incoming(self, message: RelayIncoming) -> None:
        """*message* came in meanwhile.  If too much comes in, it is fetched later."""
        size = self._queued_bytes + len(message.records)
        if size <= self.stream.buffer.bounds.size_bytes:
            self._queued_bytes = size
            self.queue.append(message)

    def compared(self, sender: BrokerId, message: RelayCompared, now: float) -> list[SendToRelay]:
        """The source has compared."""
        if self.phase is not RepairPhase.LOCATE or sender != self.source:
            return []
        if message.point is None:
            return self._found_none(message, now)
        if message.point not in self._asked:
            return []
        at = self._candidates.index(message.point)
        asked = self._asked.index(message.point) + 1
        until = (
            self._candidates.index(self._asked[asked])
            if asked < len(self._asked)
            else len(self._candidates)
        )
        if until == at + 1:
            return self._located(message.point, now)
        self._candidates = self._candidates[at:until]
        return self._compare(now)

    def _found_none(self, message: RelayCompared, now: float) -> list[SendToRelay]:
        known = message.start.end <= self._lowest <= message.end.end
        if self._keeps_delivered and known:
            self._fail(contradicts=True)
            return []
        if self._keeps_delivered and message.end.end < self._lowest:
            return self._elsewhere(now)
        if message.start.end > self.target.end:
            self.target = message.end  # the source has moved on
        return self._located(message.start, now)

    def part(self, sender: BrokerId, message: RelayPart, now: float) -> list[SendToRelay]:
        """The source has sent a part."""
        point = self._point
        if self.phase is not RepairPhase.FETCH or sender != self.source or point is None:
            return []
        last = self._side[-1].point if self._side else point
        if message.start != last.end:
            return []
        if not self._side and self._with_producers:
            if message.producers is None:
                return self._elsewhere(now)
            self._producers = message.producers
        for one in message.transactions:
            digest = next_digest(last.digest, one.id, one.records)
            if one.offset != last.end or one.digest != digest or not one.records:
                return self._elsewhere(now)
            self._side.append(one)
            last = one.point
        if not message.transactions and last.end < self.target.end:
            return self._elsewhere(now)
        return self._fetch(now)

    def overdue(self, sources: Sequence[BrokerId], now: float) -> list[SendToRelay]:
        """Ask another one if the source does not answer; *sources*: who may be asked now."""
        if self.has_failed or self.is_verified or now - self._asked_at < RELAY_FETCH_S:
            return []
        self._sources = list(sources)
        return self._elsewhere(now)

    # --- what is done about it ---------------------------------------------------------------

    def _compare(self, now: float) -> list[SendToRelay]:
        self._asked = spread(self._candidates, RELAY_POINTS_MAX)
        self._asked_at = now
        points = tuple(self._asked)
        return [SendToRelay(self.source, RelayCompare(self.epoch, self.stream.topic_id, points))]

    def _located(self, point: StreamPoint, now: float) -> list[SendToRelay]:
        self._to(RepairPhase.FETCH, now)
        self._point, self._candidates = point, []
        self._with_producers = self.stream.buffer.digest_at(point.end) != point.digest
        return self._fetch(now)

    def _fetch(self, now: float) -> list[SendToRelay]:
        assert self._point is not None
        last = self._side[-1].point if self._side else self._point
        lacks_producers = self._with_producers and self._producers is None
        if last.end < self.target.end or (lacks_producers and last.end == self.target.end):
            self._asked_at = now
            wanted = RelayFetch(
                self.epoch, self.stream.topic_id, last.end, self.target.end, lacks_producers
            )
            return [SendToRelay(self.source, wanted)]
        self._to(RepairPhase.REBUILD, now)
        self._to(RepairPhase.VERIFY, now)
        return [] if last == self.target else self._elsewhere(now)

    def _elsewhere(self, now: float) -> list[SendToRelay]:
        """Begin anew with another source."""
        self._tries += 1
        self._source += 1
        if self._tries >= RELAY_REPAIR_TRIES or not self._sources:
            self._fail()
            return []
        return self.begin(now)

    def release(self, now: float) -> bool:
        """Take over what was built; return whether something is missing that was not delivered."""
        assert self._point is not None
        self._to(RepairPhase.RELEASE, now)
        is_gap = self.stream.replace(self._point, self._side, self._producers, now)
        self._to(RepairPhase.IDLE, now)
        return is_gap


def spread(points: Sequence[StreamPoint], count: int) -> list[StreamPoint]:
    """At most *count* of *points*, evenly, the first and the last among them."""
    if len(points) <= count:
        return list(points)
    last = len(points) - 1
    return [points[index * last // (count - 1)] for index in range(count)]
