"""Options of durable subscriptions, checked before anything is done with them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from octopi.clients.options import one_of, within
from octopi.errors import InvalidOptionError
from octopi.identifiers import (
    MemberId,
    SubscriptionName,
    TopicName,
    consumer_name_fault,
    topic_name_fault,
)
from octopi.limits import ATTEMPTS_MAX, DELAY_MS_MAX, QUEUE_WINDOW_MAX
from octopi.model import QUEUE_MODES, SubscriptionMode, SubscriptionOptions

_DEFAULTS: Final = SubscriptionOptions()
_OF_MARKS: Final = frozenset({"take_over", "on_gap", "mark", "release_timeout_s", "window_bytes"})
_OF_QUEUES: Final = frozenset({"attempts", "ack_timeout_s", "prefetch", "window"})
"""Options of members in the one kind of modes, and in the other."""

PREFETCH: Final = 100
"""Messages of one log that may be open at a member of a queue."""
PREFETCH_BYTES: Final = 2**20
"""The same in bytes; one message may be larger."""
_PREFETCH_MAX: Final = 10_000


def is_queue(mode: str) -> bool:
    """Whether messages are dealt one by one in that mode."""
    return mode in QUEUE_MODES


def subscription_name(text: str) -> SubscriptionName:
    """*text*, if it can name a subscription.

    Raises:
      InvalidOptionError: if it can't.
    """
    if fault := consumer_name_fault(text):
        raise InvalidOptionError(f"subscription: {fault}")
    return SubscriptionName(text)


def member_name(text: str) -> MemberId:
    """*text*, if it can name a member.

    Raises:
      InvalidOptionError: if it can't.
    """
    if fault := consumer_name_fault(text):
        raise InvalidOptionError(f"member: {fault}")
    return MemberId(text)


def dead_letter_topic(topic: str, name: str) -> TopicName:
    """Where the dead letters of the subscription *name* of *topic* are.

    Raises:
      InvalidOptionError: if both names together are too long for the name of a topic.
    """
    text = f"{topic}.{name}.dead"
    if fault := topic_name_fault(text):
        raise InvalidOptionError(f"the topic for dead letters would be {text}: {fault}")
    return TopicName(text)


def subscription_options(
    mode: str,
    session_timeout_s: float,
    release_timeout_s: float,
    expires: timedelta | None,
    attempts: int | None = _DEFAULTS.attempts,
    ack_timeout_s: float = _DEFAULTS.ack_timeout_ms / 1000,
    window: int = _DEFAULTS.window,
) -> SubscriptionOptions:
    """The options of a new subscription.

    Raises:
      InvalidOptionError: if one is out of its range, or not for that mode.
    """
    one_of("mode", mode, *SubscriptionMode)
    within("session_timeout_s", session_timeout_s, 1, 300)
    within("release_timeout_s", release_timeout_s, 0, 300)
    if expires is not None:
        within("expires (in seconds)", expires.total_seconds(), 60, 86_400 * 365 * 100)
    if attempts is not None:
        within("attempts", attempts, 1, ATTEMPTS_MAX)
    within("ack_timeout_s", ack_timeout_s, 1, DELAY_MS_MAX / 1000)
    within("window", window, 1, QUEUE_WINDOW_MAX)
    options = SubscriptionOptions(
        session_timeout_ms=round(session_timeout_s * 1000),
        release_timeout_ms=round(release_timeout_s * 1000),
        expires_ms=None if expires is None else expires // timedelta(milliseconds=1),
        attempts=attempts,
        ack_timeout_ms=round(ack_timeout_s * 1000),
        window=window,
    )
    if fault := options.fault(mode):
        raise InvalidOptionError(fault)
    return options


def check_prefetch(prefetch: int) -> None:
    """Check how much may be open at a member.

    Raises:
      InvalidOptionError: if it is out of its range.
    """
    within("prefetch", prefetch, 1, _PREFETCH_MAX)


def check_mode(mode: str, options: Iterable[str]) -> None:
    """Check that a member in that mode can have options of these names.

    Raises:
      InvalidOptionError: if it can't.
    """
    one_of("mode", mode, *SubscriptionMode)
    others = _OF_MARKS if is_queue(mode) else _OF_QUEUES
    for option in options:
        if option in others:
            modes = "exclusive and failover" if is_queue(mode) else "shared and key_shared"
            raise InvalidOptionError(f"{option} is for the modes {modes}, not for {mode}")
