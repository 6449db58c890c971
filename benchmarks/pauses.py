"""Measures how long partitions stand still, for benchmarks that end processes under load.

Each partition has a producer, which sends a message every few milliseconds without waiting for
receipts.  A pause is the longest time between two acknowledgements.
"""

from __future__ import annotations

import os
import platform
import statistics
from itertools import pairwise
from typing import Any, Final

import trio

import octopi

TOPIC: Final = "measured"
_REST_S: Final = 2.0
"""How long leaders must stay the same.  The register balances them when a broker comes back; if it
moves none for this time, it has finished."""


class Stream:
    """The messages to one partition, and when each was acknowledged."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.acknowledged_at: list[float] = []
        self.refusals: list[str] = []
        """The reasons of messages that were refused for good; there must be none."""

    async def produce(self, url: str, interval_s: float) -> None:
        """Send a message every *interval_s* seconds, until cancelled."""
        async with (
            octopi.connect(url) as client,
            client.producer(linger_s=0) as producer,
            trio.open_nursery() as nursery,
        ):
            due = trio.current_time()
            while True:
                due = max(due + interval_s, trio.current_time() - 1)
                pending = await producer.submit(TOPIC, b"x" * 100, partition=self.partition)
                nursery.start_soon(self._wait, pending)
                await trio.sleep_until(due)

    async def _wait(self, pending: octopi.PendingReceipt) -> None:
        try:
            await pending
        except octopi.OctopiError as error:
            self.refusals.append(str(error))
        else:
            self.acknowledged_at.append(trio.current_time())


def longest_gap_s(times: list[float], begin: float, end: float) -> float:
    """The longest time between *begin* and *end* that has none of *times* in it."""
    within = [at for at in times if begin <= at <= end]
    return max(after - before for before, after in pairwise([begin, *within, end]))


async def leaders_at_rest(client: octopi.Client) -> dict[int, int]:
    """Wait until all replicas are in sync and leaders stay where they are; return the leader of
    each partition."""
    leaders: dict[int, int] = {}
    while True:
        seen = (await client.admin.describe_cluster()).partitions
        before = leaders
        leaders = {one.partition: one.leader for one in seen if one.leader is not None}
        in_sync = all(len(one.in_sync) == len(one.replicas) for one in seen)
        if leaders == before and in_sync and len(leaders) == len(seen):
            return leaders
        await trio.sleep(_REST_S)


def summary(seconds: list[float]) -> dict[str, float]:
    """The count, the median and the maximum of *seconds*, for a report."""
    return {
        "count": len(seconds),
        "median_s": round(statistics.median(seconds), 3),
        "max_s": round(max(seconds), 3),
    }


def machine() -> dict[str, Any]:
    """The machine and the version of Python, for a report."""
    return {
        "cpus": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
