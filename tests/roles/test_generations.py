"""A register brings generations of topics into force with its brokers, whatever fails meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from octopi.coordination import generations
from octopi.errors import (
    ConnectionLostError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    Status,
    UnreachableError,
)
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence
from octopi.record import BatchBuilder
from octopi.roles.broker.node import BrokerNode
from octopi.roles.register.generations import Generations
from octopi.roles.register.member import Member
from octopi.transport import handshake
from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, Node, eventually, running_cluster
from tests.kit.probes import refusal_of

PRODUCER = ProducerId(b"p" * 16)
RETRIED = {Status.NOT_LEADER, Status.NOT_READY, Status.SHUTTING_DOWN, Status.UNKNOWN_PARTITION}


class Growing:
    """A cluster of *brokers* brokers with topic "orders" in *partitions*, and its producer."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.brokers: dict[int, BrokerNode] = {}
        self.nodes: dict[int, Node] = {}
        self.next: dict[int, int] = {}

    async def start(self, brokers: int, partitions: list[int], replicated: bool = True) -> None:
        for number in range(1, brokers + 1):
            await self.start_broker(number)
        async with self.cluster.connection(self.cluster.register.url) as register:
            numbers = [PartitionId(one) for one in partitions]
            options = m.TopicOptions(min_insync=2 if replicated else 1)
            order = m.CreateTopic(register.next_request(), "orders", 0, numbers, options)
            await register.request(order, m.TopicDescription, 10)

    async def start_broker(self, number: int) -> None:
        self.nodes[number] = await self.cluster.start_broker(
            f"broker-{number}", show=lambda node: self.brokers.update({number: node})
        )

    @property
    def generations(self) -> Generations:
        return self.cluster.registers[-1].generations

    @property
    def topic(self) -> m.TopicRecord:
        topic = self.cluster.registers[-1].controller.state.topic("orders")
        assert topic is not None
        return topic

    def leader(self, partition: int) -> int:
        return self.cluster.registers[-1].controller.state.partitions[PartitionId(partition)].leader

    async def kill_leader(self, partition: int = 0) -> None:
        await self.cluster.kill(self.nodes.pop(self.leader(partition)))

    async def produce(
        self, partition: int, generation: int = 0, *, again: bool = False
    ) -> m.Produced | Status:
        """Produce the next message of the partition, or the last one *again*, until the answer is
        final."""
        first = self.next.get(partition, 0) - again
        builder = BatchBuilder()
        builder.add(b"value", b"key")
        records = builder.encode(PRODUCER, ProducerEpoch(0), Sequence(first))
        with trio.fail_after(30):
            while True:
                try:
                    node = self.nodes[self.leader(partition)]
                    async with self.cluster.connection(node.url) as leader:
                        produced = await _ask(leader, partition, generation, records)
                except RefusedError as error:
                    if error.status not in RETRIED:
                        return error.status
                except (KeyError, OSError, ConnectionLostError, UnreachableError):
                    pass
                else:
                    self.next[partition] = first + 1
                    return produced
                await trio.sleep(0.05)  # nothing announces the next leader to this test

    def ends(self, partition: int) -> set[int]:
        """The ends of the logs in a partition."""
        return {
            log.end
            for number, node in self.brokers.items()
            if number in self.nodes
            for log in node.replicas.store
            if (log.topic.topic, log.partition) == ("orders", partition)
        }


async def _ask(leader: Connection, partition: int, generation: int, records: bytes) -> m.Produced:
    message = m.Produce(
        leader.next_request(),
        "orders",
        PartitionId(partition),
        records,
        generation=generation,
    )
    return await leader.request(message, m.Produced, 10)


async def test_a_topic_that_grew_takes_messages_by_its_new_partitions_only(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(3, [0])
        stored = await growing.produce(0)
        assert isinstance(stored, m.Produced)
        topic = await growing.generations.grow("orders", 2)
        assert topic.partitions[0] == 0
        new = topic.partitions[1]
        assert topic.generations[0].sealed == [max(growing.ends(0))]
        assert await growing.produce(0) is Status.STALE_ROUTE
        again = await growing.produce(0, again=True)
        assert isinstance(again, m.Produced)
        assert (again.offset, again.duplicate) == (stored.offset, True)
        for partition in (0, new):
            assert isinstance(await growing.produce(partition, 2), m.Produced)
        # All brokers know it, and know it again after a restart of any of them.
        for number in (1, 2, 3):
            await cluster.stop(growing.nodes.pop(number))
            await growing.start_broker(number)
            assert await growing.produce(0) is Status.STALE_ROUTE
            assert isinstance(await growing.produce(0, 2), m.Produced)


async def test_a_topic_moves_and_grows_once_more(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(2, [0])
        await growing.produce(0)
        await growing.generations.move("orders", PartitionId(5))
        assert await growing.produce(0, 1) is Status.STALE_ROUTE
        assert isinstance(await growing.produce(5, 2), m.Produced)
        topic = await growing.generations.grow("orders", 4)
        assert await growing.produce(5, 2) is Status.STALE_ROUTE
        for partition in topic.partitions:
            assert isinstance(await growing.produce(partition, 3), m.Produced)


async def _described(node: Connection) -> m.TopicInfo:
    question = m.DescribeTopic(node.next_request(), "orders", False)
    return (await node.request(question, m.TopicDescription, 10)).topic


async def _listed(node: Connection) -> list[str]:
    page = await node.request(m.ListTopics(node.next_request(), "", 10), m.TopicList, 10)
    return [one.topic for one in page.topics]


async def test_clients_are_told_of_generations_and_where_sealed_logs_are(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(2, [0])
        await growing.produce(0)
        for url in (cluster.register.url, growing.nodes[1].url):
            async with cluster.connection(url) as node:
                assert (await _described(node)).generations == []
        await growing.generations.move("orders", PartitionId(5))
        for url in (cluster.register.url, growing.nodes[1].url):
            async with cluster.connection(url) as node:
                info = await _described(node)
                assert await _listed(node) == ["orders"]
            (end,) = growing.topic.generations[0].sealed
            assert info.generations == [
                m.GenerationInfo(1, [PartitionId(0)], [Offset(end)]),
                m.GenerationInfo(2, [PartitionId(5)], []),
            ]
            assert [one.partition for one in info.partitions] == [5]
            assert [one.partition for one in info.sealed_partitions] == [0]
            assert all(one.leader_address for one in info.sealed_partitions)


async def test_a_client_of_an_earlier_version_is_refused_a_topic_that_got_other_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(2, [0])
        urls = (cluster.register.url, growing.nodes[1].url)
        for url in urls:
            async with cluster.connection(url) as node:
                await _described(node)  # the broker's connection to the register is a present one
        for is_grown in (False, True):
            for url in urls:
                with monkeypatch.context() as older:
                    older.setattr(handshake, "PROTOCOL_VERSION", 1)
                    opening = cluster.connection(url)
                    async with opening as node:
                        assert node.version == 1
                        if is_grown:
                            refused = await refusal_of(_described(node))
                            assert refused.status is Status.UNSUPPORTED_VERSION
                            assert "earlier version" in str(refused)
                        else:
                            assert (await _described(node)).topic == "orders"
                        assert await _listed(node) == ([] if is_grown else ["orders"])
            if not is_grown:
                await growing.generations.move("orders", PartitionId(5))


async def test_a_register_notes_generations_and_keeps_a_cluster_that_has_any(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(1, [0], replicated=False)
        topic = await growing.generations.grow("orders", 2)
        register = cluster.registers[-1]
        noted = [one.text for one in register.events.after(0) if one.kind == "topic_altered"]
        assert noted == [
            f"topic orders was altered: generation 2 on partitions {topic.partitions} is {state}"
            for state in ("proposed", "sealing", "in force")
        ]
        with pytest.raises(RefusedError, match="has had other partitions"):
            await register.handing_over.order(m.HandOverToRing(1, dry_run=True))


async def test_a_topic_grows_only_if_all_brokers_with_its_logs_are_there_and_know_seals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(3, [0])
        monkeypatch.setattr(Member, "knows_seals", property(lambda self: self.broker != 3))
        with pytest.raises(RefusedError, match="broker 3 is away, or of an earlier version") as old:
            await growing.generations.grow("orders", 2)
        assert old.value.status is Status.NO_BROKER
        assert not growing.topic.generations, "nothing was decided"
        monkeypatch.undo()
        await cluster.stop(growing.nodes.pop(3))
        with pytest.raises(RefusedError, match="broker 3 is away, or of an earlier version"):
            await growing.generations.grow("orders", 2)
        await growing.start_broker(3)
        assert (await growing.generations.grow("orders", 2)).generations


Hook = Callable[[], Awaitable[None]]


def before(
    monkeypatch: pytest.MonkeyPatch, step: str, hook: Hook, *, skip: int = 0, after: bool = False
) -> None:
    """Have *hook* run once, before or *after* the register does *step* for the first time, or some
    times later."""
    original = getattr(Generations, step)
    counts = [skip]

    async def hooked(*arguments: object) -> object:
        is_due = counts == [0]
        counts[0] -= 1
        if is_due and not after:
            await hook()
        result = await original(*arguments)
        if is_due and after:
            await hook()
        return result

    monkeypatch.setattr(Generations, step, hooked)


@pytest.mark.parametrize(
    ("step", "skip"), [("_make_logs", 0), ("_seal", 0), ("_advanced", 0), ("_advanced", 1)]
)
async def test_a_topic_grows_although_a_leader_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, skip: int
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(3, [0])
        await growing.produce(0)
        before(monkeypatch, step, growing.kill_leader, skip=skip)
        with trio.fail_after(40):
            topic = await growing.generations.grow("orders", 2)
        assert await growing.produce(0) is Status.STALE_ROUTE
        assert topic.generations[0].sealed == [max(growing.ends(0))]
        for partition in topic.partitions:
            assert isinstance(await growing.produce(partition, 2), m.Produced)


async def test_a_leader_that_dies_when_it_has_sealed_leaves_the_seal_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(3, [0, 1])
        before(monkeypatch, "_seal", growing.kill_leader, after=True)
        with trio.fail_after(40):
            await growing.generations.grow("orders", 3)
        for partition in (0, 1):
            assert await growing.produce(partition) is Status.STALE_ROUTE


@pytest.mark.parametrize(
    ("step", "skip"), [("_make_logs", 0), ("_seal", 0), ("_advanced", 0), ("_advanced", 1)]
)
async def test_a_register_that_is_killed_goes_on_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, skip: int
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(2, [0])
        killed, listen = trio.Event(), cluster.register.url.removeprefix("ws://")

        async def die() -> None:
            killed.set()
            await trio.sleep_forever()

        before(monkeypatch, step, die, skip=skip)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(growing.generations.grow, "orders", 2)
            await killed.wait()
            nursery.cancel_scope.cancel()
        await cluster.kill(cluster.register)
        await cluster.start_register(listen=listen)
        await eventually(lambda: len(growing.topic.partitions) == 2, 30)
        assert await growing.produce(0) is Status.STALE_ROUTE
        for partition in growing.topic.partitions:
            assert isinstance(await growing.produce(partition, 2), m.Produced)


async def test_a_register_that_lost_its_disk_goes_on_with_what_brokers_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(2, [0])
        killed, listen = trio.Event(), cluster.register.url.removeprefix("ws://")

        async def die() -> None:
            killed.set()
            await trio.sleep_forever()

        before(monkeypatch, "_seal", die)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(growing.generations.grow, "orders", 2)
            await killed.wait()
            nursery.cancel_scope.cancel()
        await cluster.kill(cluster.register)
        await cluster.start_register(listen=listen, name="another")
        state = cluster.registers[-1].controller.state
        await eventually(lambda: state.topic("orders") is not None, 30)
        await eventually(lambda: len(growing.topic.partitions) == 2, 30)
        assert await growing.produce(0) is Status.STALE_ROUTE
        assert isinstance(await growing.produce(0, 2), m.Produced)


async def test_a_growth_that_is_not_done_in_time_is_cancelled_and_messages_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(3, [0, 1])
        monkeypatch.setattr(generations, "GROW_TIMEOUT_S", 2.0)
        original = Generations._seal

        async def refuses(self: Generations, growth: Any, order: generations.OrderSeal) -> None:  # noqa: ANN401
            if order.partition == 0:
                await original(self, growth, order)

        monkeypatch.setattr(Generations, "_seal", refuses)
        with pytest.raises(NotReadyError, match="keeps its partitions"):
            await growing.generations.grow("orders", 4)
        assert growing.topic.partitions == [0, 1]
        for partition in (0, 1):
            assert isinstance(await growing.produce(partition), m.Produced)
        monkeypatch.setattr(Generations, "_seal", original)
        topic = await growing.generations.grow("orders", 4)
        assert topic.generations[-1].number == 3
        assert await growing.produce(0) is Status.STALE_ROUTE
        assert isinstance(await growing.produce(0, 3), m.Produced)


async def test_only_the_leader_of_the_epoch_seals_and_only_what_is_under_way(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        growing = Growing(cluster)
        await growing.start(1, [0], replicated=False)
        topic_id = growing.topic.topic_id
        manager = growing.brokers[1].replicas
        epoch = cluster.registers[-1].controller.state.partitions[PartitionId(0)].epoch
        with pytest.raises(NotLeaderError):
            await manager.seal_topic(m.SealTopic(1, topic_id, PartitionId(0), epoch + 1, 2))
        with pytest.raises(NotLeaderError):
            await manager.seal_topic(m.SealTopic(1, topic_id, PartitionId(3), epoch, 2))
        with pytest.raises(NotReadyError, match="not made"):
            await manager.seal_topic(m.SealTopic(1, "f" * 16, PartitionId(0), epoch, 2))
        sealed = [
            await manager.seal_topic(m.SealTopic(1, topic_id, PartitionId(0), epoch, number))
            for number in (3, 3)
        ]
        assert sealed[0] == sealed[1], "a repetition has the same answer"
        with pytest.raises(NotReadyError, match="not under way"):
            await manager.seal_topic(m.SealTopic(1, topic_id, PartitionId(0), epoch, 2))
