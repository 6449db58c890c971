"""Topics grow and move under producers, while random faults strike, also at each step of that.

A planted bug that leaves out a rule is found by some seed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import trio

import octopi.testing
from octopi.clients.producing.producer import Producer
from octopi.clients.producing.producer_session import ProducerSession
from octopi.coordination.generations import (
    Advance,
    GenerationChange,
    GenerationEffect,
    SealedLog,
)
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    RefusedError,
    UnreachableError,
)
from octopi.generation_record import GenerationState
from octopi.identifiers import Epoch, Offset, PartitionId, TopicName
from octopi.model import PartitionRecord
from octopi.record import decode
from octopi.replication.generation_seals import GenerationSeal
from octopi.retry import may_pass
from octopi.simulation.kernel.world import Event
from octopi.testing import Cluster, simulated
from octopi.tracing import steps
from octopi.transport.handshake import open_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import CLIENT

PROGRAMS = 3
KEYS = 4
"""Of each program, in each topic."""
ROUNDS = 40
GROWTHS = [("wide", 4), ("narrow", 5), ("wide", 8), ("narrow", 6)]
"""In turn: "wide" gets so many partitions, "narrow" moves to that one."""


class WrongLogsError(AssertionError):
    """A message is lost or doubled, or a key has lost its order."""


class Running:
    """One run."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.seen: set[str] = set()
        cluster._world.observers.append(lambda event: self._see(event))

    def _see(self, event: Event) -> None:
        self.seen.add(event.what)

    async def run(self) -> None:
        """Let programs write while topics grow and move, then check what is stored."""
        cluster = self.cluster
        async with cluster.client() as client:
            await client.create_topic("wide", partition_ids=[0, 1])
            await client.create_topic("narrow", partition_ids=[0])
            with cluster.random_faults(["kill", "pause", "cut"], every_s=1.0):
                async with trio.open_nursery() as programs:
                    programs.start_soon(self._reshape, client)
                    for number in range(PROGRAMS):
                        programs.start_soon(self._program, number)
            await cluster.settle()
            for topic in ("wide", "narrow"):
                await self._check(client, topic)

    async def _program(self, number: int) -> None:
        name = f"program-{number}" if number == 0 else None
        async with (
            self.cluster.client(f"program-{number}") as client,
            client.producer(name=name, delivery_timeout_s=300.0) as producer,
        ):
            await self._write(producer, number)

    async def _write(self, producer: Producer, number: int) -> None:
        for message in range(ROUNDS):
            for key in range(KEYS):
                for topic in ("wide", "narrow"):
                    await producer.submit(topic, b"%d" % message, key=f"{number}/{key}".encode())
            await self.cluster.sleep(self.cluster.random.random() * 0.3)
        await producer.flush()

    async def _reshape(self, client: octopi.Client) -> None:
        for topic, number in GROWTHS:
            await self.cluster.sleep(0.8)
            order: Callable[..., object] = (
                client.admin.grow_topic if topic == "wide" else client.admin.move_topic
            )
            await self._until_done(partial(order, topic, number))

    async def _until_done(self, order: Callable[[], object]) -> None:
        while True:
            try:
                await order()  # type: ignore[misc]
            except OctopiError as error:
                if not may_pass(error):
                    return  # it was carried out before its answer was lost
                await self.cluster.sleep(0.1)
            else:
                return

    async def _check(self, client: octopi.Client, topic: str) -> None:
        """Check each key, log by log, by one generation after the other."""
        found: dict[bytes, list[int]] = {}
        position: dict[int, Offset] = {}
        for generation in (await client.describe_topic(topic)).generations:
            ends = generation.sealed or [Offset(2**62)] * len(generation.partitions)
            # New logs first: an old one may be read later than they are, if that is allowed.
            pairs = [*zip(generation.partitions, ends, strict=True)]
            for partition, end in reversed(pairs):
                at, highwater = position.get(partition, Offset(0)), 2**62
                while at < min(end, highwater):
                    answer = await self._fetched(client, topic, partition, at)
                    before, highwater = at, answer.highwater
                    for one in decode(answer.records, at, TopicName(topic), partition):
                        if one.offset < end:
                            found.setdefault(one.key or b"", []).append(int(one.value))
                            at = one.next_offset
                    if at == before and highwater < end < 2**62:
                        raise WrongLogsError(f"the end {end} of {topic}/{partition} lies behind it")
                position[partition] = at
        for number in range(PROGRAMS):
            for key in range(KEYS):
                got = found.get(f"{number}/{key}".encode(), [])
                if got != list(range(ROUNDS)):
                    raise WrongLogsError(f"{topic}, key {number}/{key}: {got}")

    async def _fetched(
        self, client: octopi.Client, topic: str, partition: PartitionId, at: Offset
    ) -> m.Fetched:
        environment = self.cluster._environments["client-1"]
        while True:
            info = await client.describe_topic(topic)
            places = [*info.partitions, *info.sealed_partitions]
            (place,) = [one for one in places if one.partition == partition]
            try:
                async with trio.open_nursery() as tasks:
                    leader = await open_connection(
                        environment, place.leader_address, CLIENT, "test"
                    )
                    await tasks.start(leader.run, lambda message: None)
                    question = m.Fetch(leader.next_request(), topic, partition, at, 10**6, 0)
                    answer = await leader.request(question, m.Fetched, 5)
                    await leader.close()
                    tasks.cancel_scope.cancel()
                    return answer
            except* (RefusedError, UnreachableError, ConnectionLostError):
                await self.cluster.sleep(0.1)


@simulated(seeds=4, partitions=8, brokers=3, replicas=3)
async def test_topics_that_grow_and_move_under_faults_lose_and_double_no_message_and_no_order(
    cluster: Cluster,
) -> None:
    running = Running(cluster)
    await running.run()
    assert {one.text for one in steps.OF_GENERATIONS} <= running.seen


# --- planted bugs ------------------------------------------------------------------------------


def sealed_logs_take_what_is_old(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GenerationSeal, "least_generation", lambda self, log: 0)


def generations_come_into_force_before_logs_end(patch: pytest.MonkeyPatch) -> None:
    def begin(
        self: GenerationChange,
        state: GenerationState,
        partitions: dict[PartitionId, PartitionRecord],
    ) -> list[GenerationEffect]:
        effects = original(self, state, partitions)
        if state != GenerationState.SEALING:
            return effects
        ends = {one: SealedLog(Epoch(partitions[one].epoch), Offset(0)) for one in self.logs}
        return [Advance(GenerationState.IN_FORCE, ends)]

    original = GenerationChange.begin
    patch.setattr(GenerationChange, "begin", begin)


def producers_go_on_before_they_have_settled(patch: pytest.MonkeyPatch) -> None:
    def supersede(self: ProducerSession) -> None:
        original(self)
        if self._unanswered:
            self._start_over(self._unanswered[0])

    original = ProducerSession.supersede
    patch.setattr(ProducerSession, "supersede", supersede)


@pytest.mark.parametrize(
    "plant",
    [
        sealed_logs_take_what_is_old,
        generations_come_into_force_before_logs_end,
        producers_go_on_before_they_have_settled,
    ],
)
def test_a_planted_bug_of_growing_topics_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)

    async def scene(cluster: Cluster) -> None:
        await Running(cluster).run()

    for seed in range(1, 13):
        try:
            octopi.testing.run(
                scene,
                seed=seed,
                partitions=8,
                brokers=3,
                replicas=3,
                shrink_s=0,
            )
        except Exception:
            return
    pytest.fail("no seed finds it")
