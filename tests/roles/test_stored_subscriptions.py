"""Durable subscriptions survive restarts and deaths of brokers, as they are stored."""

from __future__ import annotations

import attrs
import trio
from trio.testing import MockClock

from octopi.wire import messages as m
from tests.kit.world import BROKER, describe
from tests.roles.state_logs import SharedStates
from tests.roles.test_subscriptions import at_new_leader, bench_in, started


async def test_marks_members_and_claims_survive_the_death_of_the_leader(
    autojump_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        world = await started(nursery, brokers=2)
        async with bench_in(world, SharedStates(), []) as bench:
            old = bench.topic.partitions[0].leader_address
            sid = await bench.create()
            _, claim = await bench.join(sid)
            attached, _ = await bench.attach(sid, claim)
            attached.mark(bench.ends[1], acknowledge=1)
            await attached.next(m.Marked)
            await world.kill(old)
        with trio.fail_after(20):
            topic = await at_new_leader(bench, old)
        async with bench.connected(topic.partitions[0].leader_address) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[1]
            _, newer = await there.join(sid, take_over=True)
            assert newer > claim
            _, told = await there.attach(sid, newer)
            assert told.mark == bench.ends[1]
        nursery.cancel_scope.cancel()


async def test_a_broker_that_stops_stores_its_marks(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        world = await started(nursery)
        async with bench_in(world, SharedStates(), []) as bench:
            sid = await bench.create()
            attached, _ = await bench.attach(sid, 1)
            attached.mark(bench.ends[2])
            await bench.ask(m.DescribeReadings(bench.next(), ""), m.ReadingList)
            await world.stop()
        await world.start_broker()
        topic = await describe(world, "orders")
        async with bench.connected(BROKER) as connection:
            there = attrs.evolve(bench, connection=connection, topic=topic)
            assert (await there.mark_of(sid)).mark == bench.ends[2]
        nursery.cancel_scope.cancel()
