"""What was sent and what came out: the rules that queues and pipelines share.

A parcel is a message of a queue, or an output that an input has to have.  Its name tells it from
all others; if it is sent again because an attempt's outcome is unknown, it has the same name.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from math import inf

import attrs

from octopi.testing.histories.contradictions import Contradiction, HistoryRule, contradiction
from octopi.testing.histories.operation_history import ClientOperation, shown


@attrs.define(eq=False)
class ParcelArrival:
    """One time that a parcel came out."""

    name: Hashable
    operation: ClientOperation
    place: int = 0
    """Its place among those of the same operation."""

    def is_behind(self, other: ParcelArrival) -> bool:
        """Whether it surely came out after *other*."""
        if self.operation is other.operation:
            return self.place > other.place
        return other.operation.completed < self.operation.invoked


@attrs.define(eq=False)
class Parcel:
    """What was sent under one name, and what became of it."""

    name: Hashable
    order_key: Hashable
    """Parcels with the same key keep their order; None: this one has no order."""
    position: int = 0
    """Its place among those that one operation sends."""
    attempts: list[ClientOperation] = attrs.field(factory=list[ClientOperation])
    arrivals: list[ParcelArrival] = attrs.field(factory=list[ParcelArrival])

    @property
    def possible(self) -> list[ClientOperation]:
        """The attempts that may have happened."""
        return [one for one in self.attempts if one.may_have_happened]

    @property
    def acknowledged(self) -> ClientOperation | None:
        """The first attempt that was acknowledged."""
        ok = [one for one in self.attempts if one.is_ok]
        return min(ok, key=lambda one: one.ended) if ok else None


class Deliveries:
    """The parcels and arrivals of a history; *sent* and *dealt* are the verbs for texts, such as
    ``enqueued`` and ``dequeued``, and *key* is the object that they are about."""

    def __init__(self, sent: str, dealt: str, key: Hashable = None) -> None:
        self.parcels: dict[Hashable, Parcel] = {}
        self._sent = sent
        self._dealt = dealt
        self._key = key
        self._strange: list[ParcelArrival] = []

    def send(
        self, name: Hashable, order_key: Hashable, operation: ClientOperation, position: int = 0
    ) -> None:
        """Note an attempt to send a parcel."""
        parcel = self.parcels.setdefault(name, Parcel(name, order_key, position))
        parcel.attempts.append(operation)

    def arrive(self, arrival: ParcelArrival) -> None:
        """Note that a parcel came out, when all attempts have been noted, and all arrivals of
        operations that began earlier."""
        parcel = self.parcels.get(arrival.name)
        if parcel is None:
            self._strange.append(arrival)
        else:
            parcel.arrivals.append(arrival)

    def invented(self) -> Iterator[Contradiction]:
        """What came out without having been sent."""
        for arrival in self._strange:
            text = f"{arrival.operation.process} {self._dealt} {shown(arrival.name)}, which nobody "
            text += self._sent
            yield self._of(HistoryRule.INVENTED, text, arrival.operation)
        for parcel in self.parcels.values():
            for arrival in parcel.arrivals[:1]:
                one = arrival.operation
                what = f"{one.process} {self._dealt} {shown(parcel.name)}"
                if not parcel.possible:
                    text = f"{what}, and the attempt of {parcel.attempts[0].process} failed"
                    yield self._of(HistoryRule.ABORTED, text, parcel.attempts[0], one)
                elif one.completed < parcel.possible[0].invoked:
                    sender = parcel.possible[0]
                    text = f"{what} before {sender.process} {self._sent} it"
                    yield self._of(HistoryRule.INVENTED, text, sender, one)

    def lost(self, excuse_count: float = 0) -> Iterator[Contradiction]:
        """What was acknowledged and has not come out: nothing if up to *excuse_count* parcels may
        have come out without anybody noting it."""
        lost = [one for one in self.parcels.values() if one.acknowledged and not one.arrivals]
        if len(lost) <= excuse_count:
            return
        for parcel in lost:
            sender = parcel.acknowledged
            assert sender is not None
            text = f"{sender.process} {self._sent} {shown(parcel.name)}, it was acknowledged, and "
            text += f"nobody {self._dealt} it"
            if excuse_count:
                text += f"; {len(lost)} are missing, and operations with an unknown outcome can "
                text += f"have taken only {excuse_count:g}"
            yield self._of(HistoryRule.LOST, text, sender)

    def duplicates(self) -> Iterator[Contradiction]:
        """What came out more often than it may have been sent."""
        for parcel in self.parcels.values():
            allowed = max(1, len(parcel.possible))
            if len(parcel.arrivals) > allowed:
                first, again = parcel.arrivals[0].operation, parcel.arrivals[allowed].operation
                who = (
                    f"{first.process} {self._dealt} {shown(parcel.name)} twice"
                    if first.process == again.process
                    else f"{first.process} {self._dealt} {shown(parcel.name)}, and then "
                    f"{again.process} {self._dealt} it"
                )
                text = f"{who}, which was {self._sent} {_times(allowed)}"
                yield self._of(HistoryRule.DUPLICATE, text, *parcel.attempts[:1], first, again)

    def out_of_order(self) -> Iterator[Contradiction]:
        """Pairs of one key of which the second one came out first.

        For each parcel the earlier one is looked for that came out last.
        """
        by_key: dict[Hashable, list[Parcel]] = {}
        for parcel in self.parcels.values():
            if parcel.order_key is not None and parcel.arrivals and parcel.possible:
                by_key.setdefault(parcel.order_key, []).append(parcel)
        for parcels in by_key.values():
            yield from self._out_of_order(parcels)

    def _out_of_order(self, parcels: Iterable[Parcel]) -> Iterator[Contradiction]:
        by_begin = sorted(parcels, key=lambda one: (one.possible[0].invoked, one.position))
        acknowledged = [one for one in by_begin if one.acknowledged is not None]
        by_end = sorted(acknowledged, key=lambda one: (_end(one), one.position))
        taken = 0
        latest: Parcel | None = None
        previous: Parcel | None = None
        for second in by_begin:
            begin = second.possible[0].invoked
            while taken < len(by_end) and _end(by_end[taken]) < begin:
                latest = _later(latest, by_end[taken])
                taken += 1
            for first in (latest, previous):
                is_before = first is latest or (
                    first is not None and first.possible[0] is second.possible[0]
                )
                if first is None or not is_before:
                    continue
                if first.arrivals[0].is_behind(second.arrivals[0]):
                    yield self._reversed(first, second)
                    break
            previous = second

    def _reversed(self, first: Parcel, second: Parcel) -> Contradiction:
        text = f"{shown(first.name)} was {self._sent} before {shown(second.name)}, with the same "
        text += f"key {shown(first.order_key)}, and {second.arrivals[0].operation.process} "
        text += f"{self._dealt} {shown(second.name)} before {first.arrivals[0].operation.process} "
        text += f"{self._dealt} {shown(first.name)}"
        return self._of(
            HistoryRule.OUT_OF_ORDER,
            text,
            first.acknowledged or first.possible[0],
            second.possible[0],
            first.arrivals[0].operation,
            second.arrivals[0].operation,
        )

    def _of(
        self, rule: HistoryRule, text: str, *operations: ClientOperation | None
    ) -> Contradiction:
        return contradiction(rule, text, *operations, key=self._key)


def _end(parcel: Parcel) -> float:
    return inf if parcel.acknowledged is None else parcel.acknowledged.ended


def _later(latest: Parcel | None, other: Parcel) -> Parcel:
    """The one of two that came out later."""
    return other if latest is None else max(latest, other, key=_came_out)


def _came_out(parcel: Parcel) -> tuple[int, int]:
    first = parcel.arrivals[0]
    return first.operation.invoked, first.place


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
