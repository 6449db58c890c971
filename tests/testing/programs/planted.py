"""What the programs with a planted bug have in common."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import attrs

from octopi import Client
from octopi.testing import Cluster


@attrs.frozen
class Planted:
    """A program with a bug, as a test that fails if the bug shows."""

    name: str
    scene: Callable[[Cluster, bool], Awaitable[None]]
    """The test; the second argument is whether the right version of the program runs."""
    hosts: tuple[str, ...]
    """Where the program runs."""
    seed: int
    """The first seed whose random faults find the bug."""
    faults: tuple[str, ...] = ("kill",)
    """The kinds of faults at which crash points find it."""


async def values(client: Client, topic: str) -> list[bytes]:
    """All messages of a topic."""
    async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
        return [message.value async for message in consumer]
