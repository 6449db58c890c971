"""Thousands of forged messages of nodes: no process ends, and no message is lost.

Real nodes, on simulated machines in virtual time.  Some messages are drawn field by field, some
spoilt byte by byte, some have one field at an end of what its type can hold.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

import attrs
import pytest
import trio

import octopi
import octopi.testing
from octopi.environment import Environment, Link
from octopi.errors import OctopiError
from octopi.wire import messages as m
from octopi.wire.codec import encode
from octopi.wire.endpoints import FOLLOW, MEMBERSHIP, PEER, Endpoint
from tests.kit.join_secrets import prove
from tests.security.forging import Forge, Known, encoded, known, one_by_one
from tests.security.peers import joined, look, peer

SERVERS = ["register", "broker-1", "broker-2", "broker-3"]
COUNT = 20
BATCH = 250
LISTS = {one: one.to_decider | one.to_leader for one in (MEMBERSHIP, FOLLOW, PEER)}
OPTIONS = m.TopicOptions()
FAULTS = ("session_failed", "message_handler_failed", "answer_handler_failed")


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What nodes noted of faults of their own."""
    caplog.set_level(logging.ERROR)

    def found() -> list[str]:
        return [
            f"{one.getMessage()}: {one.exc_info[1]!r}" if one.exc_info else one.getMessage()
            for one in caplog.records
            if one.exc_info or any(fault in one.getMessage() for fault in FAULTS)
        ]

    return found


class Attack:
    """One cluster that is attacked."""

    def __init__(self, cluster: octopi.testing.Cluster, environment: Environment) -> None:
        self.cluster = cluster
        self.environment = environment
        self.sent = 0
        self.produced = COUNT
        self._lives = {name: cluster._simulated.nodes[name].host.life_count for name in SERVERS}

    async def facts(self) -> tuple[Known, m.ClusterDescription, m.TopicInfo]:
        async with self.cluster.client() as client:
            topic = await client.describe_topic("orders")
        cluster = await look(self.environment, self.cluster.address)
        return known(cluster, topic), cluster, topic

    @asynccontextmanager
    async def link(self, url: str, endpoint: Endpoint) -> AsyncIterator[Link]:
        """A link of a peer that has the join secret."""
        link = await self.environment.net.connect(url, endpoint.path)
        try:
            await prove(link, endpoint.path, self.cluster._simulated.secrets, "forger")
            yield link
        finally:
            with trio.CancelScope(shield=True):
                await link.aclose(1000, "")

    async def send(
        self, url: str, endpoint: Endpoint, messages: list[bytes], pause_s: float = 0.0
    ) -> None:
        """Send as many of *messages* as are taken, on one link."""
        try:
            async with self.link(url, endpoint) as link, trio.open_nursery() as nursery:
                nursery.start_soon(self._take, link)
                for data in messages:
                    self.sent += 1
                    await link.send(data)
                    if pause_s:
                        await self.cluster.sleep(pause_s)
                nursery.cancel_scope.cancel()
        except* OctopiError:
            pass  # as it has to be, most of the time

    async def _take(self, link: Link) -> None:
        with contextlib.suppress(OctopiError):
            while True:
                await link.receive()

    async def check(self) -> None:
        """See that all processes go on, everything is there, and more is taken; also after a
        restart of each node."""
        await self._produce_and_read()
        self._require_same_lives()
        for name in SERVERS:
            self.cluster.kill(name, restart_s=0.1)
            self._lives[name] += 1
            await self.cluster.sleep(3.0)
            await self._produce_and_read()
        self._require_same_lives()

    def _require_same_lives(self) -> None:
        nodes = self.cluster._simulated.nodes
        lives = {name: nodes[name].host.life_count for name in SERVERS}
        assert lives == self._lives, "a process has ended"

    async def _produce_and_read(self) -> None:
        async with self.cluster.client() as client:
            async with client.producer() as producer:
                await producer.send("orders", b"%d" % self.produced)
                self.produced += 1
            async with client.consumer("orders", start="earliest", stop_at_end=True) as messages:
                read = [message.value async for message in messages]
        assert read == [b"%d" % number for number in range(self.produced)]


async def attack(cluster: octopi.testing.Cluster) -> Attack:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        for number in range(COUNT):
            await producer.send("orders", b"%d" % number)
    return Attack(cluster, await cluster.environment("forger"))


def url_of(endpoint: Endpoint, cluster: m.ClusterDescription, topic: m.TopicInfo) -> str:
    leader = topic.partitions[0].leader_address
    return leader if endpoint is FOLLOW else "ws://register:7000"


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("endpoint", [MEMBERSHIP, FOLLOW, PEER], ids=lambda one: one.path[4:])
def test_random_messages_end_no_process_and_lose_no_message(
    endpoint: Endpoint, seed: int, complaints: Callable[[], list[str]]
) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        here = await attack(cluster)
        randomness = Random(seed)
        classes = sorted(LISTS[endpoint], key=lambda one: m.TYPE_NAMES[one])
        facts, described, topic = await here.facts()
        while here.sent < BATCH:
            forge = Forge(randomness, facts)
            messages = [forge.message(classes) for _ in range(randomness.randint(1, 12))]
            if endpoint is MEMBERSHIP and randomness.random() < 0.6:
                messages.insert(randomness.randint(0, 2), join(randomness, described))
            url = url_of(endpoint, described, topic)
            await here.send(url, endpoint, messages, randomness.choice((0.0, 0.001, 0.05)))
            await cluster.sleep(randomness.choice((0.0, 0.01, 0.3)))
            if randomness.random() < 0.1:
                facts, described, topic = await here.facts()
        await here.check()

    octopi.testing.run(scene, brokers=3, partitions=1, oracle=False, timeout_s=3_000)
    assert complaints() == []


def join(randomness: Random, cluster: m.ClusterDescription) -> bytes:
    """A question that the register says yes to."""
    nonce = f"{randomness.getrandbits(64):016x}"
    belongs = randomness.choice(("", cluster.cluster))
    return encode(m.Join(1, belongs, None, 1, nonce, [], None, "ws://nowhere:1"))


def directed(endpoint: Endpoint, cluster: m.ClusterDescription, topic: m.TopicInfo) -> list[object]:
    """A legal message of each class, for each field of which all ends are tried."""
    (place,) = topic.partitions
    assert place.leader is not None
    leader, topic_id = place.leader, topic.topic_id
    follower = next(one for one in place.in_sync if one != leader)
    record = m.PartitionRecord(0, place.epoch, 0, leader, 1, place.replicas, place.in_sync)
    life = m.RegisterGeneration(1, "n")
    ends = [m.LogEnd(topic_id, 10, sound=False, held_end=20)]
    if endpoint is FOLLOW:
        starts = [m.EpochStart(1, 0), m.EpochStart(2, 10)]
        return [
            m.Follow(0, place.epoch, follower, 1, 1 << 20, topic_id, starts, 10),
            m.Follow(0, place.epoch, follower, 1, 1 << 20, "", [], 0),
            m.Acknowledge(0, place.epoch, follower, 1, 1, topic_id, 10),
        ]
    return [
        m.Inventory(
            [record],
            [m.TopicRecord("orders", topic_id, [0], OPTIONS)],
            [m.ReplicaReport(0, place.epoch, True)],
        ),
        m.Join(1, cluster.cluster, 9, 1, "n", ["o"], life, "ws://nowhere:1"),
        m.Join(1, cluster.cluster, follower, 2, "n", ["o"], None, "ws://nowhere:1"),
        m.AcceptEpoch(0, place.epoch + 1, follower, 1, place.epoch, place.epoch, ends),
        m.AlterInSync(0, place.epoch, leader, 1, 0, place.in_sync[:1], None),
        m.AlterInSync(0, place.epoch, leader, 1, 0, place.in_sync, 1),
        m.Resign(0, place.epoch, leader, 1, "why"),
        m.OrderCarriedOut(1, [m.Undone(0, topic_id, "why")]),
        m.BrokerStatus("", 1, 1, [m.ReplicaTrouble(0, "why")]),
        m.Stopping(1),
        m.Done(1),
        m.Goodbye(),
    ]


class Member:
    """A broker of the forger's own, which joins again and again: with a new id each time the
    register would have more to do for each of them."""

    def __init__(self, cluster: str, broker: int, credential: str) -> None:
        self._known = (cluster, broker, credential)
        self._life = 1

    @classmethod
    async def of(cls, here: Attack) -> Member:
        secrets = here.cluster._simulated.secrets
        async with peer(here.environment, here.cluster.address, secrets) as connection:
            join = m.Join(1, "", None, 1, "life1", [], None, "ws://nowhere:1")
            answer = await joined(connection, join)
        return cls(answer.cluster, answer.broker, answer.credential)

    def join(self) -> bytes:
        """What the register says yes to."""
        cluster, broker, credential = self._known
        before = [f"life{self._life}"]
        self._life += 1
        life = (self._life, f"life{self._life}", before)
        return encode(m.Join(1, cluster, broker, *life, None, "ws://nowhere:1", credential))


PARTS = 4


@pytest.mark.parametrize(
    ("endpoint", "part"),
    [(MEMBERSHIP, part) for part in range(PARTS)] + [(FOLLOW, None)],
    ids=lambda one: str(getattr(one, "path", one)),
)
def test_a_field_with_an_extreme_value_ends_no_process_and_loses_no_message(
    endpoint: Endpoint, part: int | None, complaints: Callable[[], list[str]]
) -> None:
    async def scene(cluster: octopi.testing.Cluster) -> None:
        here = await attack(cluster)
        _, described, topic = await here.facts()
        url = url_of(endpoint, described, topic)
        seeds = directed(endpoint, described, topic)
        tried = [changed for seed in seeds for changed in [seed, *one_by_one(seed)]]
        if part is not None:
            tried = tried[part::PARTS]
            member = await Member.of(here)
        for message in tried:
            before: list[list[bytes]] = [[]]
            if endpoint is MEMBERSHIP:
                before.append([member.join()])
                if isinstance(message, m.Inventory):
                    before = [[]]  # it comes before the question
            elif isinstance(message, m.Acknowledge):
                (place,) = topic.partitions
                agreed = m.Follow(
                    0, place.epoch, message.broker, 1, here.sent + 1, topic.topic_id, [], 0
                )
                message = attrs.evolve(message, attempt=here.sent + 1)
                before = [[encoded(agreed)]]
            for first in before:
                after = [member.join()] if isinstance(message, m.Inventory) else []
                messages = [*first, encoded(message), *after]
                await here.send(url, endpoint, messages, 0.001)
        assert len(tried) >= (400 if part is None else 500)
        await here.check()

    octopi.testing.run(scene, brokers=3, partitions=1, oracle=False, timeout_s=30_000)
    assert complaints() == []
