"""Brokers of a ring hand their cluster over to a register, whatever is killed meanwhile: nothing is
lost, and at no moment two decide about one partition."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from functools import partial

import attrs
import pytest
import trio

from octopi.clients.client import Client, connect
from octopi.clients.ring import describe_ring, hand_over_to_registers, hand_over_to_ring
from octopi.coordination.consistent_hash import HashCircle
from octopi.errors import NotReadyError, OctopiError, RefusedError
from octopi.identifiers import TopicName
from octopi.limits import RECONNECT_GRACE_S
from octopi.ring.ending import EndingStage
from octopi.ring.homes import home_of
from octopi.roles.broker.ring.ending import RingEnding
from octopi.roles.broker.ring.topics.keeper import RingTopics
from octopi.roles.broker.ring.topics.led import LedTopics
from octopi.testing import Cluster, simulated
from octopi.wire import messages as m
from tests.kit.ending import EndingCluster, OneDeciderSince
from tests.kit.registers_and_ring import register_address
from tests.kit.ring import address
from tests.roles.test_ring_fail_over import Load, stored

THREE = ("a", "b", "c")


@attrs.define
class Ended:
    """What a test looks at while a cluster is handed over."""

    cluster: Cluster
    ending: EndingCluster
    client: Client
    load: Load
    tasks: trio.Nursery

    async def order(self) -> None:
        """Order it again and again, until it is over."""
        while True:
            try:
                progress = await hand_over_to_registers(self.client, self.ending.register_addresses)
            except OctopiError:
                pass
            else:
                if progress.stage == "ended":
                    return
            await self.cluster.sleep(0.1)

    async def is_whole(self) -> None:
        """Check that all brokers go on with the register, and nothing was lost or doubled."""
        ending, load = self.ending, self.load
        await ending.joined()
        count = len(load.acknowledged)
        await self.cluster.eventually(
            lambda: load.has(count + 50), "messages are acknowledged again", within_s=60.0
        )
        load.stops = True
        await self.cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged", within_s=60.0
        )
        found = await stored(self.client, "orders")
        assert found == [b"%d" % number for number in range(load.sent_count)]
        assert not any(ending.errors.values()), ending.errors


@asynccontextmanager
async def founded(
    cluster: Cluster, *, registers: tuple[str, ...] = ("r",), brokers: tuple[str, ...] = THREE
) -> AsyncIterator[Ended]:
    """A ring with a producer, all of whose decisions are compared."""
    ending = EndingCluster(cluster, brokers, registers=registers)
    await ending.in_ring()
    environment = await cluster.environment("client")
    async with (
        connect([*map(address, brokers)], environment=environment) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        nursery.start_soon(OneDeciderSince(ending).run)
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        await cluster.eventually(lambda: load.has(20), "messages are acknowledged")
        yield Ended(cluster, ending, client, load, nursery)
        nursery.cancel_scope.cancel()


@simulated(brokers=1, oracle=False)
async def test_topics_and_subscriptions_go_over_and_producers_wait_for_a_moment(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        client = one.client
        await client.create_topic("wide", 5, min_insync=2)
        await client.create_topic("gone")
        await client.delete_topic("gone")
        await client.alter_topic("wide", retention=datetime.timedelta(hours=1))
        before = [await client.describe_topic(name) for name in ("orders", "wide")]
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("wide", b"%d" % number, key=b"%d" % number)
        async with client.subscription("orders", "workers", mark="auto") as member:
            for number in range(5):
                assert (await anext(aiter(member))).value == b"%d" % number
        one.load.longest_pause_s = 0.0
        await one.order()
        await one.is_whole()
        assert one.load.longest_pause_s < RECONNECT_GRACE_S, one.load.longest_pause_s
        after = [await client.describe_topic(name) for name in ("orders", "wide")]
        for known, found in zip(before, after, strict=True):
            assert (known.topic_id, known.options) == (found.topic_id, found.options)
            assert [p.partition for p in known.partitions] == [
                p.partition for p in found.partitions
            ]
        assert [info.topic for info in await client.topics()] == ["orders", "wide"]
        values = await stored(client, "wide")
        assert sorted(values) == sorted(b"%d" % number for number in range(20))
        async with client.subscription("orders", "workers", create="attach") as member:
            assert (await anext(aiter(member))).value == b"5"
        await client.alter_topic("wide", retention=datetime.timedelta(hours=2))
        await client.create_topic("new")
        await client.delete_topic("wide")
        assert [info.topic for info in await client.topics()] == ["new", "orders"]
        # All of that is in the register's journal, and on the brokers' disks.
        for name in ("r", *THREE):
            cluster.kill(name)
            cluster.restart(name)
        await cluster.sleep(0.5)
        await one.ending.joined()
        assert [info.topic for info in await client.topics()] == ["new", "orders"]
        assert len(await stored(client, "orders")) == one.load.sent_count


@attrs.define
class Churn:
    """Creates and deletes topics, and knows which ones there have to be."""

    client: Client
    there: set[str] = attrs.field(factory=set)
    in_doubt: set[str] = attrs.field(factory=set)
    count: int = 0

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            name = f"topic-{self.count}"
            self.count += 1
            await self._do(name, self.client.create_topic(name, 1 + self.count % 4))
            if name in self.there and self.count % 2:
                await self._do(name, self.client.delete_topic(name))

    async def _do(self, name: str, work: Awaitable[object]) -> None:
        was_there = name in self.there
        self.there.discard(name)
        self.in_doubt.add(name)
        try:
            await work
        except OctopiError:
            return
        self.in_doubt.discard(name)
        if not was_there:
            self.there.add(name)


async def topics_change_meanwhile(cluster: Cluster) -> None:
    """Topics are created and deleted while the cluster is handed over."""
    async with founded(cluster) as one:
        churn = Churn(one.client)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(churn.run)
            await cluster.sleep(1.0 + cluster.random.random())
            await one.order()
            await one.ending.joined()
            count = churn.count
            await cluster.eventually(
                lambda: churn.count > count + 3, "topics are created again", within_s=60.0
            )
            nursery.cancel_scope.cancel()
        await one.is_whole()
        found = {info.topic for info in await one.client.topics()} - {"orders"}
        assert churn.there <= found <= churn.there | churn.in_doubt
        assert not one.ending.register.controller.unserved.found()
        for name in churn.there:
            assert await stored(one.client, name) == []


@simulated(seeds=2, brokers=1, oracle=False)
async def test_topics_are_created_and_deleted_meanwhile(cluster: Cluster) -> None:
    await topics_change_meanwhile(cluster)


@pytest.mark.parametrize("victim", ["r", *THREE])
@pytest.mark.parametrize("stage", list(EndingStage)[:3])
def test_a_process_is_killed_in_each_stage(stage: EndingStage, victim: str) -> None:
    a_process_is_killed_in(stage, victim)


def a_process_is_killed_in(stage: EndingStage, victim: str) -> None:
    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with founded(cluster) as one:
            strike = cluster.random.choice([cluster.kill, cluster.lose_power])
            async with trio.open_nursery() as nursery:
                nursery.start_soon(one.order)
                while not any(known.stage is stage for known in one.ending.endings):
                    await cluster.sleep(0.001)
                strike(victim, restart_s=1.0)
            await one.is_whole()

    scenario()


@simulated(seeds=4, brokers=1, oracle=False)
async def test_processes_are_killed_at_random_moments_of_an_order(cluster: Cluster) -> None:
    async with founded(cluster) as one:
        random = cluster.random
        victims = random.sample(["r", *THREE], random.randint(1, 3))

        async def strike(victim: str) -> None:
            await cluster.sleep(random.choice([0.05, 0.5, 2.0]) * random.random())
            kill = random.choice([cluster.kill, cluster.lose_power])
            kill(victim, restart_s=0.2 + 3 * random.random())

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.5 * random.random()):  # the command is killed, too
                nursery.start_soon(one.order)
                for victim in victims:
                    nursery.start_soon(strike, victim)
                await trio.sleep_forever()
        await one.order()
        await one.is_whole()


def test_a_deletion_that_not_all_partitions_know_of_is_finished_first() -> None:
    a_deletion_is_told_late()


def a_deletion_is_told_late() -> None:
    """Some partitions can't be told that a topic is gone before the order has begun."""

    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with founded(cluster) as one:
            home = home_of(TopicName("wide"), HashCircle(8))
            elsewhere = [number for number in range(8) if number != home]
            await one.client.create_topic("wide", partition_ids=elsewhere)
            ordered, until = RingTopics.order, cluster.now + 8.0

            async def order(self: RingTopics, message: m.HostTopic) -> None:
                if message.is_gone and self.clock.now() < until:
                    raise NotReadyError("it can't be told")
                await ordered(self, message)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(RingTopics, "order", order)
                await one.client.delete_topic("wide")
                assert cluster.now < until
                await one.order()
                await one.is_whole()
            topics = [info.topic for info in await one.client.topics()]
            assert topics == ["orders"], "the deleted topic is back"

    scenario()


# --- who is away -----------------------------------------------------------------------------


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_was_away_at_the_commit_point_joins_when_it_is_back(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        ending = one.ending
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order)
            while not any(known.is_over for known in ending.endings):
                await cluster.sleep(0.001)
            cluster.lose_power("c")
        await cluster.eventually(
            lambda: all(name in ending.nodes for name in ("a", "b")), "the others have left"
        )
        await cluster.sleep(5.0)
        assert not ending.register.controller.state.partitions, "it decides without broker 3"
        cluster.restart("c")
        await one.is_whole()


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_lost_its_disk_at_the_commit_point_is_given_up_by_an_operator(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        ending = one.ending
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order)
            while not any(known.is_over for known in ending.endings):
                await cluster.sleep(0.001)
            cluster.wipe("c")
        await cluster.eventually(
            lambda: all(name in ending.nodes for name in ("a", "b")), "the others have left"
        )
        admin = one.client.admin
        with pytest.raises(RefusedError, match="waits for broker 3: start it; if its disk is lost"):
            await admin.recover_partition(0)
        for partition in range(8):
            assert (await admin.recover_partition(partition, accept_loss=True)).leader in {1, 2}
        count = len(one.load.acknowledged)
        await cluster.eventually(
            lambda: one.load.has(count + 50), "two brokers go on", within_s=60.0
        )
        one.load.stops = True
        await cluster.eventually(
            lambda: len(one.load.acknowledged) == one.load.sent_count, "all is acknowledged"
        )
        assert len(await stored(one.client, "orders")) == one.load.sent_count
        assert [info.topic for info in await one.client.topics()] == ["orders"]

        # The register never heard of the broker that is lost, and says so.
        place = await in_sync_at_last(cluster, one.client, [1, 2])
        cluster.kill("a")
        place = await in_sync_at_last(cluster, one.client, [2])
        cluster.kill("b")
        cluster.restart("a")
        await cluster.sleep(5.0)
        told = await admin.recover_partition(place.partition)
        assert told.leader is None
        assert {one.broker: one.live for one in told.replicas} == {1: True, 2: False, 3: False}


async def in_sync_at_last(cluster: Cluster, client: Client, in_sync: list[int]) -> m.PartitionInfo:
    """Wait until these are in sync for the messages."""
    with trio.fail_after(60):
        while True:
            place = (await client.describe_topic("orders")).partitions[0]
            if place.in_sync == in_sync:
                return place
            await cluster.sleep(0.1)


@simulated(brokers=1, oracle=False)
async def test_an_attempt_is_given_up_when_a_broker_is_lost_and_the_ring_goes_on(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        ending = one.ending
        progress = await hand_over_to_registers(one.client, ending.register_addresses)
        assert (progress.stage, progress.brokers) == ("resting", [1, 2, 3])
        while not any(known.stage is EndingStage.CLOSING for known in ending.endings):
            await cluster.sleep(0.001)
        cluster.kill("c")
        await cluster.sleep(2.0)
        shown = await describe_ring(one.client)
        assert shown.ending == "closing"
        assert 3 in shown.ending_awaits
        assert list(shown.registers) == ending.register_addresses
        await cluster.eventually(
            lambda: all(known.stage is EndingStage.GIVEN_UP for known in ending.endings),
            "it is given up",
            within_s=30.0,
        )
        shown = await describe_ring(one.client)
        assert (shown.ending, shown.ending_awaits) == ("given_up", ())
        count = len(one.load.acknowledged)
        await cluster.eventually(
            lambda: one.load.has(count + 50), "the ring goes on with two brokers", within_s=30.0
        )
        await one.client.create_topic("new")
        with pytest.raises(RefusedError, match="broker 3 is away: start it, or remove it"):
            await hand_over_to_registers(one.client, ending.register_addresses)
        cluster.restart("c")
        await ending.in_ring()
        await one.order()
        await one.is_whole()
        assert {info.topic for info in await one.client.topics()} == {"new", "orders"}


@simulated(brokers=1, oracle=False)
async def test_a_register_that_loses_its_disk_meanwhile_is_replaced_by_an_empty_one(
    cluster: Cluster,
) -> None:
    async with founded(cluster) as one:
        ending = one.ending
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order)
            while "a" not in ending.nodes:
                await cluster.sleep(0.001)
            cluster.wipe("r")
            await cluster.sleep(cluster.random.random())
            cluster.restart("r")
        await one.is_whole()


@simulated(brokers=1, oracle=False)
async def test_three_registers_take_over_though_the_active_one_is_killed(cluster: Cluster) -> None:
    async with founded(cluster, registers=("r", "s", "t")) as one:
        ending = one.ending
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order)
            while not (formed := _with_cluster(ending)):
                await cluster.sleep(0.001)
            cluster.kill(formed[0], restart_s=2.0)
        await one.is_whole()


def _with_cluster(ending: EndingCluster) -> list[str]:
    nodes = ending.register_nodes.items()
    return [name for name, node in nodes if node.controller.state.cluster]


@simulated(brokers=1, oracle=False)
async def test_groups_that_are_no_majority_of_a_larger_ring_go_over(cluster: Cluster) -> None:
    five = ("a", "b", "c", "d", "e")
    async with founded(cluster, brokers=five) as one:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.order)
            while not any(known.stage is EndingStage.CLOSING for known in one.ending.endings):
                await cluster.sleep(0.001)
            cluster.kill("d", restart_s=1.0)
        await one.is_whole()


@simulated(brokers=1, oracle=False)
async def test_a_cluster_that_a_register_handed_over_comes_back_to_another_one(
    cluster: Cluster,
) -> None:
    ending = EndingCluster(cluster, THREE, former="q")
    await ending.joined()
    environment = await cluster.environment("client")
    async with (
        connect([*map(address, THREE)], environment=environment) as client,
        connect([register_address("q")], environment=environment) as operator,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        await cluster.eventually(lambda: load.has(20), "messages are acknowledged")
        await cluster.sleep(1.0)
        await hand_over_to_ring(operator)
        await ending.in_ring()
        with pytest.raises(
            RefusedError, match=r"has a cluster, .*: start a register with an empty"
        ):
            await hand_over_to_registers(client, [register_address("q")])
        await client.create_topic("new")
        one = Ended(cluster, ending, client, load, nursery)
        nursery.start_soon(OneDeciderSince(ending).run)
        async with trio.open_nursery() as striking:
            striking.start_soon(one.order)
            while not any(known.is_over for known in ending.endings):
                await cluster.sleep(0.001)
            cluster.kill("b", restart_s=1.0)
        await one.is_whole()
        assert {info.topic for info in await client.topics()} == {"new", "orders"}
        # That is for good: its acceptors can't be used again.
        async with connect(ending.register_addresses, environment=environment) as last:
            with pytest.raises(RefusedError, match="broker 1 is not prepared"):
                await hand_over_to_ring(last)
        nursery.cancel_scope.cancel()


# --- wrong orders ----------------------------------------------------------------------------


@simulated(brokers=1, oracle=False)
async def test_wrong_orders_are_refused_in_words(cluster: Cluster) -> None:
    async with founded(cluster) as one:
        order = partial(hand_over_to_registers, one.client)
        with pytest.raises(RefusedError, match="does not reach the register ws://nobody:7000"):
            await order(["ws://nobody:7000"])
        with pytest.raises(RefusedError, match="name 1 to 9 registers, each once"):
            await order(one.ending.register_addresses * 2)
        with pytest.raises(RefusedError, match="does not reach the register ws://a:9101"):
            await order([address("a")])
        other = EndingCluster(cluster, (), registers=("other",))
        await cluster.sleep(1.0)
        possible = await order(other.register_addresses, dry_run=True)
        assert (possible.stage, possible.brokers) == ("", [1, 2, 3])
        await one.client.create_topic("still-decided")
        await order(one.ending.register_addresses)
        with pytest.raises(RefusedError, match="is being handed over to ws://r:7000"):
            await order(other.register_addresses)
        await one.order()
        await one.ending.joined()
        # A new broker that was told to join the ring is told where the register is.
        one.ending.ring.start("late", THREE)
        errors = one.ending.ring.errors
        await cluster.eventually(lambda: "late" in errors, "it is refused")
        assert "start the broker with --register ws://r:7000" in str(errors["late"][0])
        await one.is_whole()


# --- planted mistakes ------------------------------------------------------------------------


def killed_in_each_stage() -> None:
    for victim in THREE:
        a_process_is_killed_in(EndingStage.CLOSING, victim)


def test_brokers_that_state_what_is_not_closed_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RingEnding, "_are_all", lambda self, is_so: True)
    monkeypatch.setattr(RingEnding, "_close", lambda self, attempt, brokers: None)

    async def have_ended(self: RingEnding, attempt: int) -> bool:
        return True

    monkeypatch.setattr(RingEnding, "_have_ended", have_ended)
    with pytest.raises((AssertionError, ExceptionGroup), match=r"decides about|unhandled"):
        killed_in_each_stage()


def test_leaders_that_do_not_rest_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LedTopics, "is_at_rest", property(lambda self: self.is_ready))
    with pytest.raises(AssertionError, match="the deleted topic is back"):
        a_deletion_is_told_late()
