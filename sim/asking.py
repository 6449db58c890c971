"""Questions that make a broker look at much of what it has: where a log was at a time, and which
message is the last but so many."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from octopi.clients.client import Client
from octopi.clients.starts import Place

_LONG_AGO: Final = datetime(2026, 1, 1, 0, 0, 1, tzinfo=UTC)
"""A second after every run begins."""

_PLACES: Final[tuple[Place, ...]] = (-3, -(10**6), _LONG_AGO)


async def ask_for_offsets(client: Client, topic: str) -> None:
    """Have every log of *topic* asked where a consumer would begin.

    Raises:
      OctopiError: if that isn't answered.
    """
    for place in _PLACES:
        async with client.consumer(topic, start=place, reconnect_timeout_s=1.0):
            pass
