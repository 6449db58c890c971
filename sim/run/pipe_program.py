"""A member of a run's pipe, and the reader that compares the pipe's output with its input."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Final

import trio

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.errors import OctopiError, TopicExistsError, UnknownTopicError
from octopi.limits import GROWN_BATCH_BYTES
from octopi.retry import may_pass
from octopi.simulation.history.events import LogName
from sim.run.client_log import ClientLog
from sim.run.group_notes import NAME
from sim.run.member_lives import SESSION_TIMEOUT_S, MemberLives

RESULTS: Final = "results"
"""The topic of the output."""

_RELEASE_TIMEOUT_S: Final = 0.5
_AGAIN_S: Final = 0.3
_RESULTS_MAX: Final = 3
_PAD: Final = bytes(40)


def results_of(value: bytes, offset: int) -> list[bytes]:
    """What comes of the message at *offset*: none, one or several results."""
    count = zlib.crc32(value) % (_RESULTS_MAX + 1)
    return [b"%d.%d/%d" % (offset, index, count) + _PAD for index in range(count)]


class PipeProgram(MemberLives):
    """See `MemberLives`."""

    async def live(self, environment: Environment, randomness: Random) -> None:
        """Join, process and send."""
        workload = self.client_log.plan.workload
        is_exclusive = workload.member_mode == "exclusive"
        async with self.client_log.connected(environment) as client:
            await _make_results(client, self.client_log)
            async with client.pipe(
                self.client_log.topics[0],
                NAME,
                into=RESULTS,
                mode="exclusive" if is_exclusive else "failover",
                member=self.static_name,
                take_over=is_exclusive and randomness.random() < 0.4,
                session_timeout_s=SESSION_TIMEOUT_S,
                release_timeout_s=_RELEASE_TIMEOUT_S,
                batch_bytes=randomness.choice((1, 1, 300, GROWN_BATCH_BYTES)),
                delivery_timeout_s=5.0,
                reconnect_timeout_s=None,
            ) as pipe:
                async for message in pipe:
                    for result in results_of(message.value, message.offset):
                        await pipe.send(result, key=message.key)
                    await self.spend_time(environment.clock, randomness)
                    if randomness.random() < 0.1:
                        await pipe.commit()
                    if self.is_over(1, randomness):
                        return


async def _make_results(client: Client, client_log: ClientLog) -> None:
    plan = client_log.plan
    with suppress(TopicExistsError):
        await client.create_topic(
            RESULTS,
            partitions=plan.workload.topic_partitions,
            min_insync=plan.min_insync,
            flush_before_ack=plan.flush_before_ack,
        )


class PipeReader:
    """Reads input and output at the end of a run, and judges them."""

    host: Final = "pipe-reader"

    def __init__(self, client_log: ClientLog) -> None:
        self.ends: Mapping[LogName, int] = {}
        """Up to where the input is to be processed."""
        self.behind = "the pipe's output is unread"
        """What it waits for; empty: nothing."""
        self._client_log = client_log

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.kernel.host.Program`."""
        client_log, clock = self._client_log, environment.clock
        async with client_log.connected(environment) as client:
            while self.behind:
                try:
                    await self._look(client)
                except UnknownTopicError:
                    pass  # no member has made it yet
                except OctopiError as error:
                    if not may_pass(error):
                        client_log.complain(self.host, error)
                        return
                await clock.sleep_until(clock.now() + _AGAIN_S)
                await trio.lowlevel.checkpoint()

    async def _look(self, client: Client) -> None:
        wanted = await self._read(client, self._client_log.topics[0], is_input=True)
        found = await self._read(client, RESULTS, is_input=False)
        self.behind = ", ".join(self._compare(wanted, found))

    async def _read(self, client: Client, topic: str, *, is_input: bool) -> list[list[bytes]]:
        """The results that each log of *topic* stands for, or has, by its place."""
        info = await client.describe_topic(topic)
        read: dict[int, list[bytes]] = defaultdict(list)
        async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
            async for one in consumer:
                read[one.partition] += (
                    results_of(one.value, one.offset) if is_input else [one.value]
                )
        return [read[one.partition] for one in info.partitions]

    def _compare(self, wanted: list[list[bytes]], found: list[list[bytes]]) -> list[str]:
        """The places at which results are missing in the end.  Others than those that come next
        are a complaint."""
        missing = []
        for place, (of_input, of_output) in enumerate(zip(wanted, found, strict=True)):
            if of_output != of_input[: len(of_output)]:
                self._client_log.complaints.append(
                    f"the pipe's output is not its input, once: log {place} has "
                    f"{[one.rstrip(_PAD[:1]) for one in of_output]} and not "
                    f"{[one.rstrip(_PAD[:1]) for one in of_input]}"
                )
            elif len(of_output) < len(of_input):
                missing.append(f"log {place} has {len(of_output)} of {len(of_input)} results")
        return missing
