"""Tasks of clients that are woken at the same moment: others have their turn between them.

Work is counted, not timed: a stopwatch that only the test moves says that each read of a log takes
as long as a turn may.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio

from octopi.identifiers import Offset
from octopi.limits import ROUND_S, TURN_S
from octopi.roles.broker.readable_log import ReadableLog
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, describe, eventually
from tests.kit.probes import batch, produce

COUNT = 40
"""Of each connection."""
A_ROUND = int(ROUND_S / TURN_S)
"""Reads that fit into a round, as long as they take here."""


class Reads(trio.abc.Instrument):
    """Counts the reads in each round of the loop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.in_round: Counter[int] = Counter()
        self._round = 0

    def __call__(self) -> float:
        """The stopwatch."""
        return self.seconds

    def before_io_wait(self, timeout: float) -> None:
        self._round += 1

    def note(self) -> None:
        self.seconds += TURN_S
        self.in_round[self._round] += 1


@asynccontextmanager
async def counted(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Reads, m.TopicInfo, list[Connection]]]:
    """A cluster of one broker with a topic, and three connections to that."""
    reads, read = Reads(), ReadableLog.read

    def noted(log: ReadableLog, offset: Offset, bytes_max: int) -> bytes:
        if bytes_max:
            reads.note()
        return read(log, offset, bytes_max)

    monkeypatch.setattr(ReadableLog, "read", noted)
    trio.lowlevel.add_instrument(reads)
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, directory)
        cluster.environment = attrs.evolve(cluster.environment, stopwatch=reads)
        await cluster.start_register()
        await cluster.start_broker()
        topic = await describe(cluster, "orders")
        url = topic.partitions[0].leader_address
        async with (
            cluster.connection(url) as one,
            cluster.connection(url) as two,
            cluster.connection(url) as three,
        ):
            yield reads, topic, [one, two, three]
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(reads)


async def test_fetches_that_have_waited_for_the_same_records_are_answered_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[object] = []
    async with counted(tmp_path, monkeypatch) as (reads, topic, (producing, *waiting)):
        place = topic.partitions[0].partition
        for connection in waiting:
            for _ in range(COUNT):
                fetch = m.Fetch(connection.next_request(), "orders", place, 0, 1000, 20_000)
                connection.ask(fetch, answers.append)
            question = m.DescribeLogs(connection.next_request(), "", "", -1)
            await connection.request(question, m.LogList, 5)  # behind them
        reads.in_round.clear()
        await produce(producing, topic, batch(0, b"value"))
        await eventually(lambda: len(answers) == 2 * COUNT)
        assert all(isinstance(one, m.Fetched) and one.records for one in answers)
    assert reads.in_round.total() == 2 * COUNT
    assert max(reads.in_round.values()) <= A_ROUND + 1


async def test_readings_to_the_same_old_records_are_served_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with counted(tmp_path, monkeypatch) as (reads, topic, (producing, *reading)):
        place = topic.partitions[0].partition
        await produce(producing, topic, batch(0, b"value"))
        reads.in_round.clear()
        answers: list[object] = []
        for connection in reading:
            for _ in range(COUNT):
                number = connection.next_request()
                connection.ask(m.Subscribe(number, "orders", place, 0, 1 << 40), answers.append)
        await eventually(lambda: sum(isinstance(one, m.Delivery) for one in answers) == 2 * COUNT)
    assert reads.in_round.total() == 2 * COUNT
    assert max(reads.in_round.values()) <= A_ROUND + 1
