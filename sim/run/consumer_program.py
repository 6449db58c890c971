"""A consumer of a run: reads a topic without end, and notes what it gets."""

from __future__ import annotations

from random import Random
from typing import Final

from octopi.clients.consuming.consumer import Consumer
from octopi.clients.consuming.start_position import Start, last
from octopi.environment import Environment
from octopi.errors import HistoryForkedError, HistoryLostError, OctopiError
from octopi.identifiers import Offset, PartitionId
from octopi.limits import CONSUMER_WINDOW_BYTES
from octopi.retry import may_pass
from octopi.simulation.history.events import Assigned, Delivered, LogName, PositionStored, Resumed
from sim.run.client_log import ClientLog

_AGAIN_S: Final = 0.1
_POSITION_EVERY_COUNT: Final = 5
_WINDOWS_BYTES: Final = (CONSUMER_WINDOW_BYTES, 2_000, 1)


class ConsumerProgram:
    """Consumer number *number*.  When it is replaced, the next consumer starts at the position that
    was stored last."""

    def __init__(self, client_log: ClientLog, number: int) -> None:
        self.name = f"c{number}"
        self.host = f"consumer-{number}"
        topics = [*client_log.relay_topics, *client_log.topics]
        self.topic = topics[number % len(topics)]
        self.ends: dict[LogName, int] = {}
        """The end of the newest message that it got, by log."""
        self._client_log = client_log
        self._number = number
        self._life = 0
        self._stored = ""
        """The stored position as text; empty: none was stored yet."""
        self._offsets: dict[LogName, int] = {}
        """The offsets in the stored position."""

    async def run(self, environment: Environment) -> None:
        """See `octopi.simulation.kernel.host.Program`."""
        client_log, clock = self._client_log, environment.clock
        await client_log.topics_made.wait()
        while True:
            self._life += 1
            randomness = client_log.cluster.world.random("consumer", self._number, self._life)
            try:
                async with (
                    client_log.connected(environment) as client,
                    client.consumer(
                        self.topic,
                        start=self._start(randomness),
                        window_bytes=randomness.choice(_WINDOWS_BYTES),
                        on_gap="skip" if self._number % 2 else "raise",
                        on_fork="resume" if self._number % 2 else "raise",
                        reconnect_timeout_s=None,
                    ) as consumer,
                ):
                    self._begin(consumer)
                    await self._read(environment, consumer, randomness)
                    self._store(consumer)
            except (HistoryLostError, HistoryForkedError):
                self._stored = ""
            except OctopiError as error:
                if not may_pass(error):
                    client_log.complain(self.name, error)
                    return
                await clock.sleep_until(clock.now() + _AGAIN_S)

    def _start(self, randomness: Random) -> Start:
        if self._stored:
            return self._stored
        if self._client_log.plan.workload.starts_late and self._number % 2:
            return randomness.choice(("latest", last(1), last(3)))
        return "earliest"

    def _begin(self, consumer: Consumer) -> None:
        client_log = self._client_log
        offsets = self._offsets_of(consumer)
        for log, offset in offsets.items():
            kind = Resumed if self._stored else Assigned
            client_log.note(kind(client_log.now, self.name, log, Offset(offset)))
        self.ends = offsets

    async def _read(self, environment: Environment, consumer: Consumer, randomness: Random) -> None:
        """Read until this consumer is to be replaced by another one."""
        client_log, clock = self._client_log, environment.clock
        workload = client_log.plan.workload
        left = randomness.randint(1, 2 * workload.reopen_count) if workload.reopen_count else -1
        count = forks = 0
        async for one in consumer:
            for fork in consumer.forks[forks:]:
                forks += 1
                assert fork.partition is not None
                assert fork.offset is not None
                again = LogName(self.topic, PartitionId(fork.partition))
                self.ends[again] = fork.offset
                client_log.note(
                    Assigned(client_log.now, self.name, again, Offset(fork.offset), True)
                )
            log = LogName(one.topic, one.partition)
            if one.offset != self.ends.get(log) == _before_gaps(consumer, log, one.offset):
                client_log.note(Assigned(client_log.now, self.name, log, one.offset))
            client_log.note(
                Delivered(
                    client_log.now,
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
                pause_s = randomness.expovariate(1 / workload.consumer_pause_s)
                await clock.sleep_until(clock.now() + pause_s)

    def _store(self, consumer: Consumer) -> None:
        client_log = self._client_log
        for log, offset in self._offsets_of(consumer).items():
            if self._offsets.get(log) != offset:
                client_log.note(PositionStored(client_log.now, self.name, log, Offset(offset)))
                self._offsets[log] = offset
        self._stored = str(consumer.position)

    def _offsets_of(self, consumer: Consumer) -> dict[LogName, int]:
        offsets = consumer.position.offsets
        return {LogName(self.topic, one): int(offset) for one, offset in offsets.items()}


def _before_gaps(consumer: Consumer, log: LogName, offset: Offset) -> int:
    """The offset that *consumer* wanted next in *log* before gaps led it to *offset*."""
    for gap in reversed(consumer.gaps):
        if (gap.partition, gap.available_from) == (log.partition, offset):
            offset = Offset(gap.wanted)
    return offset
