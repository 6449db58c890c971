"""The messages of the topic ``_octopi.events``: which events of a node are to be written.

The node's own list of events is the queue: it is bounded, and drops the oldest.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import attrs

from octopi.limits import HISTORY_BATCH_MAX
from octopi.wire.messages import ClusterEvent

FORMAT: Final = 1
"""Counts up when a field changes its meaning; new fields don't count."""


@attrs.frozen
class HistoryMessage:
    """One message for a system topic."""

    at_ms: int
    """When that happened which it tells (ms since 1970)."""
    value: bytes


class EventMessages:
    """The events of one life of a node, in their order, each until it is written."""

    def __init__(self, after: Callable[[int], list[ClusterEvent]], life: Callable[[], str]) -> None:
        """*after* returns the kept events behind a number, oldest first.  *life* returns the nonce
        of this start of the node; empty, until it has begun."""
        self._after = after
        self._life = life
        self._written = 0
        """The number of the last event that was written or dropped."""
        self._seen: list[int] = []
        """The numbers of the events that `pending` returned last."""
        self.dropped_count = 0
        """Events that the node's list dropped before they were written."""

    def pending(self) -> list[HistoryMessage]:
        """The oldest events that are not written yet, at most `HISTORY_BATCH_MAX` of them."""
        life = self._life()
        events = self._after(self._written)[:HISTORY_BATCH_MAX] if life else []
        if events:
            self.dropped_count += events[0].number - self._written - 1
            self._written = events[0].number - 1
        self._seen = [one.number for one in events]
        return [event_message(one, life) for one in events]

    def written(self, count: int) -> None:
        """The first *count* messages of the last `pending` are in the topic."""
        if count:
            self._written = self._seen[count - 1]


def event_message(event: ClusterEvent, life: str) -> HistoryMessage:
    """The message of *event*: the fields of the page ``/api/v1/events``, with the life of the
    node, within which events are numbered."""
    fields = attrs.asdict(event)
    del fields["origin"]  # life and number say that here
    content = {"format": FORMAT, "life": life, **fields}
    return HistoryMessage(event.at_ms, as_json(content))


def as_json(content: object) -> bytes:
    """*content* as one line of JSON."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
