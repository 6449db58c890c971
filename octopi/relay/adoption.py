"""Bringing all streams to where an epoch begins, before a relay is part of it.

Nothing is taken over before everything is there: a relay that would hold some streams of one epoch
and some of another one could not say what its history is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum, unique

from octopi.identifiers import BrokerId, TopicId
from octopi.limits import RELAY_REPAIRS_AT_ONCE
from octopi.relay.anti_entropy import RepairCounts, StreamRepair
from octopi.relay.effects import SendToRelay
from octopi.relay.epoch import EpochPlan
from octopi.relay.messages import RelayCompared, RelayPart
from octopi.relay.stream import RelayStream


@unique
class AdoptionKind(Enum):
    """How a relay becomes part of an epoch."""

    START = "its sequencer, by votes"
    FOLLOW = "by its start"
    JOIN = "from nothing, by answers"


class EpochAdoption:
    """The repairs by which a relay becomes part of an epoch."""

    def __init__(
        self,
        plan: EpochPlan,
        kind: AdoptionKind,
        streams: Mapping[TopicId, RelayStream],
        new: Callable[[TopicId], RelayStream],
        removed: Container[TopicId],
        now: float,
        *,
        keeps_delivered: bool,
        repaired: RepairCounts | None = None,
    ) -> None:
        """*streams*: what the relay holds; *new*: makes an empty stream.  *removed*: streams that
        are to be gone.  *now*: when it was known that the epoch has begun, or may.
        *repaired*: what the repairs do is added there."""
        self.plan, self.kind, self.known_at = plan, kind, now
        self.repairs: dict[TopicId, StreamRepair] = {}
        for topic_id, target in plan.targets.items():
            held = streams.get(topic_id)
            self.repairs[topic_id] = StreamRepair(
                held if held is not None else new(topic_id),
                plan.epoch,
                target.point,
                target.sources,
                keeps_delivered=keeps_delivered and held is not None,
                counts=repaired,
            )
        lost = [
            one
            for topic_id, one in streams.items()
            if topic_id not in plan.targets and topic_id not in removed and one.highwater
        ]
        self._contradicts = keeps_delivered and bool(lost)
        self._waiting = deque(self.repairs.values())
        self._running: list[StreamRepair] = []

    @property
    def is_verified(self) -> bool:
        """Whether everything is there."""
        return not self._waiting and not self._running

    @property
    def contradicts(self) -> bool:
        """Whether what was delivered is not part of the history of that epoch."""
        return self._contradicts or any(one.contradicts for one in self._running)

    @property
    def has_failed(self) -> bool:
        """Whether nobody could help with one of the streams."""
        return self.contradicts or any(one.has_failed for one in self._running)

    def advance(self, now: float) -> list[SendToRelay]:
        """Begin as many repairs as may run."""
        sends: list[SendToRelay] = []
        self._running = [one for one in self._running if not one.is_verified]
        while self._waiting and len(self._running) < RELAY_REPAIRS_AT_ONCE:
            repair = self._waiting.popleft()
            sends += repair.begin(now)
            if not repair.is_verified:
                self._running.append(repair)
        return sends

    def compared(self, sender: BrokerId, message: RelayCompared, now: float) -> list[SendToRelay]:
        """A source has compared."""
        repair = self.repairs.get(message.topic_id)
        sends = repair.compared(sender, message, now) if repair is not None else []
        return sends + self.advance(now)

    def part(self, sender: BrokerId, message: RelayPart, now: float) -> list[SendToRelay]:
        """A source has sent a part."""
        repair = self.repairs.get(message.topic_id)
        sends = repair.part(sender, message, now) if repair is not None else []
        return sends + self.advance(now)

    def overdue(self, sources: Sequence[BrokerId], now: float) -> list[SendToRelay]:
        """Ask others where a source does not answer."""
        sends: list[SendToRelay] = []
        for repair in self._running:
            own = self.plan.targets[repair.stream.topic_id].sources
            there = [one for one in (*own, *sources) if one in sources]
            sends += repair.overdue(there, now)
        return sends + self.advance(now)
