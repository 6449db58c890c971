"""Durable subscriptions through restarts and deaths of brokers, with what is stored of them."""

from __future__ import annotations

from pathlib import Path

import attrs
import trio

from octopi.transport.connection import Connection
from octopi.wire import messages as m
from tests.kit.cluster import Cluster, Node, describe
from tests.kit.probes import batch, produce
from tests.roles.state_logs import SharedStates
from tests.roles.test_subscriptions import Bench, at_new_leader


async def bench_of(
    cluster: Cluster, nodes: list[Node], connection: Connection, topic: m.TopicInfo
) -> Bench:
    ends = []
    for number, value in enumerate((b"one", b"two", b"three")):
        records = batch(number, value)
        ends.append((await produce(connection, topic, records)).offset + len(records))
    return Bench(cluster, nodes, SharedStates(), [], topic, connection, ends)


async def test_marks_members_and_claims_survive_the_death_of_the_leader(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        nodes = [await cluster.start_broker(f"broker-{one}") for one in (1, 2)]
        topic = await describe(cluster, "orders")
        old = topic.partitions[0].leader_address
        async with cluster.connection(old) as connection:
            bench = await bench_of(cluster, nodes, connection, topic)
            sid = await bench.create()
            _, claim = await bench.join(sid)
            attached, _ = await bench.attach(sid, claim)
            attached.mark(bench.ends[1], acknowledge=1)
            await attached.next(m.Marked)
            await cluster.kill(next(one for one in nodes if one.url == old))
        with trio.fail_after(20):
            topic = await at_new_leader(bench, old)
        async with cluster.connection(topic.partitions[0].leader_address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[1]
            _, newer = await there.join(sid, take_over=True)
            assert newer > claim
            _, told = await there.attach(sid, newer)
            assert told.mark == bench.ends[1]
        nursery.cancel_scope.cancel()


async def test_a_broker_that_stops_stores_its_marks(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        node = await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(node.url) as connection:
            bench = await bench_of(cluster, [node], connection, topic)
            sid = await bench.create()
            attached, _ = await bench.attach(sid, 1)
            attached.mark(bench.ends[2])
            await bench.ask(m.DescribeReadings(bench.next(), ""), m.ReadingList)
            await cluster.stop(node)
        await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(topic.partitions[0].leader_address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[2]
        nursery.cancel_scope.cancel()
