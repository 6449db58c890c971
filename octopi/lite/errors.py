"""The errors that Octopi Lite has beside those of the client."""

from __future__ import annotations

from octopi.errors import OctopiError


class LiteError(OctopiError):
    """The base class of the errors of Octopi Lite."""


class InvalidPartitionIdError(LiteError):
    """The caller named a partition that the topic doesn't have."""

    _code = "unknown_partition"


class LeaderNotFoundError(LiteError):
    """No broker leads the partition now; an election may be under way.  The message may be stored
    later nevertheless."""

    _code = "not_ready"


class BrokerDisconnectError(LiteError):
    """The leader did not acknowledge the message in time.  It may be stored later nevertheless."""

    _code = "outcome_unknown"


class NotLiteError(LiteError):
    """The topic has records that are no messages of Octopi Lite, so its messages have no
    numbers."""

    _code = "wrong_kind"
