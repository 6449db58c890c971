"""Counters and queue lengths of one connection, at one moment."""

from __future__ import annotations

import attrs


@attrs.frozen
class ConnectionStatistics:
    """Counters since the connection was opened, and queue lengths of this moment."""

    sent_count: int
    """Messages handed to the link, heartbeats included."""
    sent_bytes: int
    received_count: int
    received_bytes: int
    outbox_bytes: int
    """Encoded messages that wait for the link."""
    unanswered_count: int
    """Requests of the peer without an answer yet."""
    awaited_count: int
    """Requests of ours that may still get answers."""
