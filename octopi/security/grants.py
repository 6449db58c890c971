"""The grants of a token: verbs, each with patterns of topic names.

Pure.  In a pattern ``*`` stands for any characters, or none.  Operations on the cluster, such as
draining a broker, need the pattern ``*``.

The verb ``consume`` is about durable subscriptions.  Its patterns have two parts, that of the topic
and that of the subscription, as in ``orders/billing`` and ``orders.*/*``; ``*`` alone stands for
``*/*``.

System topics are written by nodes only: creating, altering and deleting them, and producing to
them, needs ``replicate``.  Reading them needs what reading any topic needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from octopi.errors import InvalidOptionError
from octopi.identifiers import is_system_topic
from octopi.limits import PATTERNS_PER_VERB_MAX, TOPIC_NAME_BYTES_MAX
from octopi.model import Verb as Verb

EVERY_TOPIC: Final = "*"

_PATTERN: Final = re.compile(r"[A-Za-z0-9._*-]+", re.ASCII)

_CHANGES: Final = frozenset({Verb.CREATE, Verb.PUBLISH, Verb.ADMIN})
"""The verbs that need ``replicate`` on system topics."""

_BETWEEN: Final = "/"
"""Stands between the topic and the subscription, and in no name."""


@attrs.frozen
class Grants:
    """The patterns that each verb is granted for; everything else is denied."""

    patterns: Mapping[Verb, tuple[str, ...]]

    def allows(self, verb: Verb, topic: str | None, subscription: str | None = None) -> bool:
        """Whether *verb* is granted on *topic*; None: on the cluster as a whole.

        ``consume`` is granted on a *subscription* of the topic; None: on any of them."""
        if topic is not None and verb in _CHANGES and is_system_topic(topic):
            return self._allows(Verb.REPLICATE, None, None)
        return self._allows(verb, topic, subscription)

    def allows_with(self, verb: Verb, topic: str) -> bool:
        """Whether *verb* is granted on *topic* for an order about a durable subscription of it,
        which changes nothing in the topic, so that system topics are no exception."""
        return self._allows(verb, topic, None)

    def _allows(self, verb: Verb, topic: str | None, subscription: str | None) -> bool:
        patterns = self.patterns.get(verb, ())
        if topic is None:
            return EVERY_TOPIC in patterns
        if verb is Verb.CONSUME:
            return any(_matches_subscription(pattern, topic, subscription) for pattern in patterns)
        return any(matches(pattern, topic) for pattern in patterns)

    def covers(self, topic: str | None) -> bool:
        """Whether any verb is granted on *topic*; then its existence may be shown."""
        return any(self.allows(verb, topic) for verb in self.patterns)


EVERYTHING: Final = Grants(dict.fromkeys(Verb, (EVERY_TOPIC,)))
"""The grants of every connection to a node that requires no tokens."""


def grants(wanted: Mapping[str, Sequence[str]]) -> Grants:
    """The grants that *wanted* (verb -> patterns) describes.

    Raises:
      InvalidOptionError: if a verb does not exist, or a pattern is not valid.
    """
    found: dict[Verb, tuple[str, ...]] = {}
    for name, patterns in wanted.items():
        if name not in set(Verb):
            raise InvalidOptionError(f"there is no verb {name[:40]!r}; there are {', '.join(Verb)}")
        if len(patterns) > PATTERNS_PER_VERB_MAX:
            raise InvalidOptionError(f"a verb has at most {PATTERNS_PER_VERB_MAX} patterns")
        for pattern in patterns:
            if fault := _pattern_fault(Verb(name), pattern):
                raise InvalidOptionError(f"{pattern[:40]!r} is not a pattern: {fault}")
        found[Verb(name)] = tuple(patterns)
    return Grants(found)


def _pattern_fault(verb: Verb, pattern: str) -> str:
    """What is wrong with a pattern of *verb*; empty: nothing."""
    is_pair = verb is Verb.CONSUME and pattern != EVERY_TOPIC
    parts = pattern.split(_BETWEEN) if is_pair else [pattern]
    if len(parts) == 1 + is_pair and all(is_pattern(one) for one in parts):
        return ""
    if is_pair:
        return "write TOPIC/SUBSCRIPTION, with * for any characters, as in 'orders/*'"
    return "write a topic name, * for any characters"


def is_pattern(text: str) -> bool:
    """Whether *text* is a pattern of topic names; a name is one, too."""
    return len(text) <= TOPIC_NAME_BYTES_MAX and _PATTERN.fullmatch(text) is not None


def _matches_subscription(pattern: str, topic: str, subscription: str | None) -> bool:
    if pattern == EVERY_TOPIC:
        return True
    of_topics, _, of_subscriptions = pattern.partition(_BETWEEN)
    if not matches(of_topics, topic):
        return False
    return subscription is None or matches(of_subscriptions, subscription)


def matches(pattern: str, topic: str) -> bool:
    """Whether *pattern* matches *topic*.  Takes time linear in both lengths for every pattern."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == topic
    last = rest.pop()
    if len(topic) < len(first) + len(last):
        return False
    if not (topic.startswith(first) and topic.endswith(last)):
        return False
    at, end = len(first), len(topic) - len(last)
    for part in rest:
        # The earliest place is as good as any: it leaves the most for the other parts.
        at = topic.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
