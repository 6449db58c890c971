"""The messages of the topic ``_octopi.rates``: differences of a broker's counters.

A message has amounts and the seconds in which they came together, so amounts of several messages
can be added up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import nlargest

import attrs

from octopi.history.event_messages import FORMAT, HistoryMessage, as_json
from octopi.limits import HISTORY_BATCH_MAX, HISTORY_SAMPLES_MAX, HISTORY_TOPICS_MAX

LogName = tuple[str, int]
"""Topic id and partition."""


@attrs.frozen
class LogCounters:
    """The counters of one log at a broker, which begin when the log is opened."""

    topic: str
    leads: bool
    """Whether the broker leads it: a follower appends what the leader took."""
    messages_in: int
    bytes_in: int
    bytes_out: int


@attrs.frozen
class Amounts:
    """What a broker took from producers and gave to consumers."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(
            self.messages_in + other.messages_in,
            self.bytes_in + other.bytes_in,
            self.bytes_out + other.bytes_out,
        )


def grown_by_topic(
    before: Mapping[LogName, LogCounters], now: Mapping[LogName, LogCounters]
) -> dict[str, Amounts]:
    """What came to each topic between two looks, where it is more than nothing.

    What a log took counts if the broker led it at both looks, or if the log is new.  So nothing is
    counted at two brokers; after a change of leader, what came since the last look isn't counted.
    """
    found: dict[str, Amounts] = {}
    for name, log in now.items():
        last = before.get(name)
        if last is None:
            last = LogCounters(log.topic, log.leads, 0, 0, 0)
        leads = last.leads and log.leads
        amounts = Amounts(
            _growth(last.messages_in, log.messages_in) if leads else 0,
            _growth(last.bytes_in, log.bytes_in) if leads else 0,
            _growth(last.bytes_out, log.bytes_out),
        )
        if amounts != Amounts():
            found[log.topic] = found.get(log.topic, Amounts()) + amounts
    return found


def _growth(before: int, now: int) -> int:
    """How much a counter grew that may have begun anew."""
    return now - before if now >= before else now


class RateMessages:
    """The notes of one broker, in their order, each until it is written."""

    def __init__(self) -> None:
        self._last: tuple[float, Mapping[LogName, LogCounters]] | None = None
        self._kept: deque[HistoryMessage] = deque()
        self._seen: list[HistoryMessage] = []
        """What `pending` returned last."""
        self.dropped_count = 0
        """Notes that were dropped, the oldest first, because they could not be written."""

    def note(
        self,
        broker: int,
        incarnation: int,
        at_ms: int,
        now: float,
        counters: Mapping[LogName, LogCounters],
    ) -> None:
        """The *counters* of a broker at *now* (monotonic, s); the first look makes no message."""
        last, self._last = self._last, (now, counters)
        if last is None or now <= last[0]:
            return
        seconds = now - last[0]
        by_topic = grown_by_topic(last[1], counters)
        total = sum(by_topic.values(), Amounts())
        busiest = nlargest(
            HISTORY_TOPICS_MAX,
            by_topic.items(),
            key=lambda one: (one[1].bytes_in + one[1].bytes_out, one[0]),
        )
        content = {
            "format": FORMAT,
            "broker": broker,
            "incarnation": incarnation,
            "at_ms": at_ms,
            "seconds": round(seconds, 3),
            **attrs.asdict(total),
            "topics": [{"topic": topic, **attrs.asdict(one)} for topic, one in busiest],
            "topics_count": len(by_topic),
        }
        self._kept.append(HistoryMessage(at_ms, as_json(content)))
        if len(self._kept) > HISTORY_SAMPLES_MAX:
            self._kept.popleft()
            self.dropped_count += 1

    def pending(self) -> list[HistoryMessage]:
        """The oldest notes that are not written yet, at most `HISTORY_BATCH_MAX` of them."""
        self._seen = list(self._kept)[:HISTORY_BATCH_MAX]
        return self._seen

    def written(self, count: int) -> None:
        """The first *count* messages of the last `pending` are in the topic."""
        for one in self._seen[:count]:
            if self._kept and self._kept[0] is one:  # else it was dropped meanwhile
                self._kept.popleft()
