"""Which topics a consumer of several topics reads, and where it begins in each.

Pure.  A pattern is one of those that tokens grant (`octopi.security.grants`): ``*`` stands for any
characters, or none.  What a program calls a topic without a ``*`` is a name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from octopi.clients.consuming.positions import Positions
from octopi.clients.consuming.start_position import Start, offset_query
from octopi.errors import InvalidOptionError, InvalidTopicError
from octopi.identifiers import SYSTEM_PREFIX, TopicName, is_system_topic, topic_name
from octopi.limits import TOPICS_PER_CONSUMER_MAX
from octopi.position import Position
from octopi.security.grants import is_pattern, matches

ANY: Final = "*"
"""Stands for any characters in a pattern, and for all other topics in a mapping of starts."""

_SYSTEM: Final = SYSTEM_PREFIX.rstrip(".")
"""What a pattern begins with that also means system topics."""

_GREATEST: Final = "~"
"""Comes behind all characters of names."""


def has_wildcard(text: str) -> bool:
    """Whether *text* is a pattern, and no name."""
    return ANY in text


@attrs.frozen
class TopicSelection:
    """Topics by name, and by pattern."""

    names: tuple[TopicName, ...]
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, topics: Sequence[str]) -> TopicSelection:
        """The selection of *topics*, names and patterns; one that is given twice counts once.

        Raises:
          InvalidTopicError: if one is neither a legal name nor a pattern.
          InvalidOptionError: if there is none, or there are too many.
        """
        given = list(dict.fromkeys(topics))
        if not given:
            raise InvalidOptionError("name at least one topic to consume")
        if len(given) > TOPICS_PER_CONSUMER_MAX:
            raise InvalidOptionError(
                f"{len(given)} topics are too many: one consumer reads at most "
                f"{TOPICS_PER_CONSUMER_MAX}"
            )
        patterns = [one for one in given if has_wildcard(one)]
        for one in patterns:
            if not is_pattern(one):
                raise InvalidTopicError(
                    f"{one[:80]!r} is no pattern of topics: use letters, digits, '.', '_' and '-' "
                    "(ASCII), and '*' for any characters"
                )
        names = [topic_name(one) for one in given if not has_wildcard(one)]
        return cls(tuple(names), tuple(patterns))

    def is_matched(self, topic: str) -> bool:
        """Whether a pattern matches *topic*, which was not named.  Topics of the cluster itself are
        matched by patterns that begin as their names do."""
        patterns = self.patterns
        if is_system_topic(topic):
            patterns = tuple(one for one in patterns if one.startswith(_SYSTEM))
        return topic not in self.names and any(matches(one, topic) for one in patterns)

    @property
    def prefixes(self) -> list[str]:
        """What the names of all topics that are matched begin with, so that only a part of the
        register's list has to be asked for.  None of them begins with another."""
        found: list[str] = []
        for prefix in sorted(one.split(ANY)[0] for one in self.patterns):
            if not found or not prefix.startswith(found[-1]):
                found.append(prefix)
        return found


def before(prefix: str) -> str:
    """A text behind all names that come before *prefix*, and before all that begin with it."""
    if not prefix:
        return ""
    return prefix[:-1] + chr(ord(prefix[-1]) - 1) + _GREATEST


@attrs.frozen
class Starts:
    """Where to begin in each topic."""

    of_topics: Mapping[str, Start]
    of_others: Start

    def of(self, topic: str) -> Start:
        """Where to begin in *topic*."""
        return self.of_topics.get(topic, self.of_others)


def starts_of(start: Start | Mapping[str, Start], selection: TopicSelection) -> Starts:
    """What the caller's *start* means for the topics of *selection*.

    Raises:
      InvalidOptionError: if it is no start, an offset for all topics, or names a topic that is not
          selected.
    """
    if isinstance(start, str) and start.startswith("v1:"):
        start = Positions.parse(start)
    elif isinstance(start, Position):
        start = {start.topic: start}
    if not isinstance(start, Mapping):
        _check_of_all(start)
        return Starts({}, start)
    of_topics: dict[str, Start] = {}
    of_others: Start = "earliest"
    for topic, one in start.items():
        if topic == ANY:
            _check_of_all(one)
            of_others = one
            continue
        if topic not in selection.names and not selection.is_matched(topic):
            raise InvalidOptionError(
                f"start names topic {topic[:80]!r}, which is not among those to consume"
            )
        of_topics[topic] = _start_in(topic, one)
    return Starts(of_topics, of_others)


def _check_of_all(start: Start) -> None:
    """Raises:
    InvalidOptionError: if *start* isn't one for any number of topics."""
    if isinstance(start, Position) or (isinstance(start, str) and start.startswith("v1:")):
        raise InvalidOptionError("a position is a place in one topic, and can't stand for others")
    if offset_query(start) is None:  # type: ignore[arg-type]  # raises if it is another text
        raise InvalidOptionError(
            f"start is {start!r}, and an offset is a place in one log: name its topic, as in "
            f"start={{'orders': {start!r}}}"
        )


def _start_in(topic: str, start: Start) -> Start:
    if isinstance(start, str) and start.startswith("v1:"):
        start = Position.parse(start)
    if isinstance(start, Position):
        if start.topic != topic:
            raise InvalidOptionError(
                f"start of topic {topic} is a position in {start.topic}, another topic"
            )
    else:
        offset_query(start)  # type: ignore[arg-type]  # raises if it is another text
    return start
