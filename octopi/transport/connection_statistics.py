"""How a connection is doing: counters and queue lengths of a moment."""

from __future__ import annotations

import attrs


@attrs.frozen
class ConnectionStatistics:
    """How a connection is doing."""

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
    """Requests of ours that still listen for answers."""
