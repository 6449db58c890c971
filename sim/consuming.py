"""A consumer of a run: reads a topic for ever, and notes what it is handed."""

from __future__ import annotations

from random import Random
from typing import Final

from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.start_position import Start, last
from octopi.environment import Environment
from octopi.errors import HistoryForkedError, HistoryLostError, OctopiError
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.retry import may_pass
from octopi.simulation.history import Assigned, Delivered, LogName, PositionStored, Resumed
from sim.notebook import Notebook

_AGAIN_S: Final = 0.1
_POSITION_EVERY_COUNT: Final = 5
_WINDOWS_BYTES: Final = (CONSUMER_WINDOW_BYTES, 2_000, 1)


class ConsumerProgram:
    """Consumer number *number*: each life of it goes on at the position stored last."""

    def __init__(self, notebook: Notebook, number: int) -> None:
        self.name = f"c{number}"
        self.host = f"consumer-{number}"
        self.topic = notebook.topics[number % len(notebook.topics)]
        self.ends: dict[LogName, int] = {}
        """How far it was handed each log."""
        self._notebook = notebook
        self._number = number
        self._life = 0
        self._stored = ""
        """Where it goes on, as text; empty: nothing was stored yet."""
        self._offsets: dict[LogName, int] = {}
        """The same."""

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.host.Program`."""
        notebook, clock = self._notebook, environment.clock
        await notebook.topics_made.wait()
        while True:
            self._life += 1
            chance = notebook.cluster.world.random("consumer", self._number, self._life)
            try:
                async with (
                    notebook.connected(environment) as client,
                    client.consumer(
                        self.topic,
                        start=self._start(chance),
                        window_bytes=chance.choice(_WINDOWS_BYTES),
                        on_gap="skip" if self._number % 2 else "raise",
                        on_fork="resume" if self._number % 2 else "raise",
                        reconnect_timeout_s=None,
                    ) as consumer,
                ):
                    self._begin(consumer)
                    await self._read(environment, consumer, chance)
                    self._store(consumer)
            except (HistoryLostError, HistoryForkedError):
                self._stored = ""
            except OctopiError as error:
                if not may_pass(error):
                    notebook.complain(self.name, error)
                    return
                await clock.sleep_until(clock.now() + _AGAIN_S)

    def _start(self, chance: Random) -> Start:
        if self._stored:
            return self._stored
        if self._notebook.plan.workload.starts_late and self._number % 2:
            return chance.choice(("latest", last(1), last(3)))
        return "earliest"

    def _begin(self, consumer: Consumer) -> None:
        notebook = self._notebook
        offsets = self._offsets_of(consumer)
        for log, offset in offsets.items():
            kind = Resumed if self._stored else Assigned
            notebook.note(kind(notebook.now, self.name, log, offset))
        self.ends = offsets

    async def _read(self, environment: Environment, consumer: Consumer, chance: Random) -> None:
        """Read until it is time to go on with another consumer."""
        notebook, clock = self._notebook, environment.clock
        workload = notebook.plan.workload
        left = chance.randint(1, 2 * workload.reopen_count) if workload.reopen_count else -1
        count = forks = 0
        async for one in consumer:
            for fork in consumer.forks[forks:]:
                forks += 1
                assert fork.partition is not None
                assert fork.offset is not None
                again = LogName(self.topic, fork.partition)
                self.ends[again] = fork.offset
                notebook.note(Assigned(notebook.now, self.name, again, fork.offset, True))
            log = LogName(one.topic, one.partition)
            if one.offset != self.ends.get(log) == _before_gaps(consumer, log, one.offset):
                notebook.note(Assigned(notebook.now, self.name, log, one.offset))
            notebook.note(
                Delivered(
                    notebook.now,
                    self.name,
                    log,
                    one.offset,
                    one.next_offset,
                    one.value,
                    one.key,
                    one.headers,
                )
            )
            self.ends[log] = one.next_offset
            count += 1
            if count % _POSITION_EVERY_COUNT == 0:
                self._store(consumer)
            if count == left:
                return
            if workload.consumer_pause_s:
                pause_s = chance.expovariate(1 / workload.consumer_pause_s)
                await clock.sleep_until(clock.now() + pause_s)

    def _store(self, consumer: Consumer) -> None:
        notebook = self._notebook
        for log, offset in self._offsets_of(consumer).items():
            if self._offsets.get(log) != offset:
                notebook.note(PositionStored(notebook.now, self.name, log, offset))
                self._offsets[log] = offset
        self._stored = str(consumer.position)

    def _offsets_of(self, consumer: Consumer) -> dict[LogName, int]:
        offsets = consumer.position.offsets
        return {LogName(self.topic, one): int(offset) for one, offset in offsets.items()}


def _before_gaps(consumer: Consumer, log: LogName, offset: int) -> int:
    """Where a consumer of *log* was that goes on at *offset* behind gaps that it was told of."""
    for gap in reversed(consumer.gaps):
        if (gap.partition, gap.available_from) == (log.partition, offset):
            offset = gap.wanted
    return offset
