"""The marks in the logs of one partition as any replica knows them, for retention.

Each replica has the partition's log ``~subscriptions``, and reads there how far the slowest
subscription is in each log.  An entry that is not known to be committed may be taken back, or may
count already; so until then the older mark counts, and the newer one, too.  Members may be further
than the newest mark that is stored.

Pure: the caller reads the log, and says what of it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from octopi.identifiers import Offset, TopicId
from octopi.model import SubscriptionOptions
from octopi.subscriptions.entries import UnreadableEntryError

_EXPIRES_MS: Final = SubscriptionOptions().expires_ms


@attrs.frozen
class SlowestMark:
    """How far the slowest subscription is in a log."""

    offset: Offset
    """What lies from here on has yet to be processed."""
    subscription: str
    """Its name; empty: the marks are not known, so all of the log may have yet to be processed."""


UNKNOWN: Final = SlowestMark(Offset(0), "")
"""Of a replica that doesn't know the marks."""


@attrs.frozen
class _KnownMark:
    """One entry of a mark."""

    end: Offset
    """Where its record ends."""
    mark: SlowestMark | None
    """None: the mark was removed."""
    expires_at_ms: int | None
    """It holds nothing after this time (ms since 1970); None: it holds for ever."""


class KnownMarks:
    """What was read of the log from its start to `end`.

    Invariant: of each key at most one entry is committed: the newest of those that are.
    """

    def __init__(self, start: Offset) -> None:
        """Nothing was read yet; *start*: where the log begins."""
        self.end = start
        """Up to where the log was read (exclusive)."""
        self._by_topic: dict[TopicId, dict[str, list[_KnownMark]]] = {}
        """Topic -> key -> its entries that may count, the oldest first."""
        self._open: dict[str, TopicId] = {}
        """Keys with more than one of them, or whose only one is a removal."""

    def read(self, key: str, value: Mapping[str, Any] | None, end: Offset) -> None:
        """The next entry of the log, whose record ends at *end*; without *value* it removes *key*.

        Raises:
          UnreadableEntryError: if it is a mark that can't be read.
        """
        self.end = end
        if not key.startswith("k/"):
            return
        topic_id = TopicId(key.rpartition("/")[2])
        entries = self._by_topic.setdefault(topic_id, {}).setdefault(key, [])
        entries.append(_stored(key, value, end))
        if len(entries) > 1 or value is None:
            self._open[key] = topic_id

    def commit(self, highwater: Offset) -> None:
        """All that ends at *highwater* or before is committed: what it replaces counts no more."""
        for key, topic_id in list(self._open.items()):
            marks = self._by_topic[topic_id]
            entries = marks[key]
            while len(entries) > 1 and entries[1].end <= highwater:
                del entries[0]
            if len(entries) > 1:
                continue
            if entries[0].mark is not None:
                del self._open[key]
            elif entries[0].end <= highwater:
                del self._open[key], marks[key]
                if not marks:
                    del self._by_topic[topic_id]

    def slowest(self, topic_id: TopicId, now_ms: int) -> SlowestMark | None:
        """The least mark in the log of a topic, but for those of subscriptions that nobody has used
        for as long as they live; None: there is none.  *now_ms*: wall clock (ms since 1970)."""
        marks = (
            one.mark
            for entries in self._by_topic.get(topic_id, {}).values()
            for one in entries
            if one.mark is not None
            if one.expires_at_ms is None or now_ms < one.expires_at_ms
        )
        return min(marks, key=lambda mark: mark.offset, default=None)


def _stored(key: str, value: Mapping[str, Any] | None, end: Offset) -> _KnownMark:
    if value is None:
        return _KnownMark(end, None, None)
    try:
        mark = SlowestMark(Offset(value["mark"]), value["name"])
        expires_ms = value.get("expires_ms", _EXPIRES_MS)
        expires_at_ms = None if expires_ms is None else value.get("changed_ms", 0) + expires_ms
    except (KeyError, TypeError) as error:
        raise UnreadableEntryError(key, f"it is no mark: {error}") from None
    return _KnownMark(end, mark, expires_at_ms)
