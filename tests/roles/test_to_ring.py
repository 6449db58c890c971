"""A register hands its cluster over to its brokers, whatever is killed meanwhile: nothing is lost,
and at no moment two decide about one partition."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio

import octopi
from octopi.clients.client import Client, connect
from octopi.clients.ring import hand_over_to_ring
from octopi.coordination.decisions import ClusterDecision
from octopi.coordination.journal_entries import HandedOver
from octopi.errors import OctopiError, OutcomeUnknownError, RefusedError, Status
from octopi.identifiers import PartitionId
from octopi.replication.effects import Refusal
from octopi.ring.cluster_record import encode_cluster
from octopi.ring.homes import Entry
from octopi.roles.broker.ring.topics import led
from octopi.roles.broker.ring.topics.carrying_out import appended
from octopi.roles.broker.ring.topics.hosted import HostedTopics
from octopi.roles.broker.ring.topics.ports import TopicLogs
from octopi.roles.register.handing_over import HandingOver
from octopi.roles.register.streams import RegisterStreams
from octopi.roles.streams.exchange import StreamCaller
from octopi.testing import Cluster, simulated
from octopi.transport.http_requests import Asker, HttpRequest
from octopi.wire import messages as m
from tests.kit.changing import ChangingCluster, OneDecider
from tests.kit.registers_and_ring import register_address
from tests.kit.ring import address
from tests.roles.test_ring_fail_over import Load, stored

THREE = ("a", "b", "c")


@attrs.define
class Changed:
    """What a test looks at while a cluster changes over."""

    cluster: Cluster
    changing: ChangingCluster
    client: Client
    operator: Client
    load: Load
    tasks: trio.Nursery

    async def order(self) -> None:
        """Order it again and again, until it is answered."""
        while True:
            try:
                await hand_over_to_ring(self.operator)
            except OctopiError:
                await self.cluster.sleep(0.2)
            else:
                return

    async def at_the_commit_point(self, act: Callable[[], object]) -> None:
        """Order it once, and *act* when it is decided, before any broker has heard of it."""
        register = self.changing.register_nodes["r"]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.order_once)
            while not register.handing_over.is_done.is_set():
                await self.cluster.sleep(0.001)
            act()
            nursery.cancel_scope.cancel()

    async def order_once(self) -> None:
        with suppress(OctopiError):
            await hand_over_to_ring(self.operator)

    async def is_whole(self) -> None:
        """Check that all brokers go on without the register, and nothing was lost or doubled."""
        changing, load = self.changing, self.load
        await changing.in_ring()
        changing.check_handed_over()
        count = len(load.acknowledged)
        await self.cluster.eventually(
            lambda: load.has(count + 50), "messages are acknowledged again", within_s=30.0
        )
        load.stops = True
        await self.cluster.eventually(
            lambda: len(load.acknowledged) == load.sent_count, "all is acknowledged", within_s=60.0
        )
        found = await stored(self.client, "orders")
        assert found == [b"%d" % number for number in range(load.sent_count)]
        # A register that reads its journal anew has nothing behind the hand-over.
        for name in changing.registers:
            self.cluster.kill(name)
            self.cluster.restart(name)
        await self.cluster.sleep(5.0)
        assert not any(name in changing.errors for name in changing.registers)
        assert await hand_over_to_ring(self.operator) == list(map(address, changing.brokers))


@asynccontextmanager
async def changed(
    cluster: Cluster, *, registers: tuple[str, ...] = ("r",), brokers: tuple[str, ...] = THREE
) -> AsyncIterator[Changed]:
    """A cluster with a producer, all of whose decisions are compared."""
    changing = ChangingCluster(cluster, brokers, registers=registers)
    await changing.joined()
    environment = await cluster.environment("client")
    async with (
        connect([*map(address, brokers)], environment=environment) as client,
        connect([*map(register_address, registers)], environment=environment) as operator,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        nursery.start_soon(OneDecider(changing).run)
        load = Load()
        nursery.start_soon(load.run, client, "orders")
        await cluster.eventually(lambda: load.has(20), "messages are acknowledged")
        yield Changed(cluster, changing, client, operator, load, nursery)
        nursery.cancel_scope.cancel()


@simulated(brokers=1, oracle=False)
async def test_topics_subscriptions_and_drained_brokers_go_over(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        client = one.client
        await client.create_topic("wide", 5, min_insync=2)
        await client.create_topic("gone")
        await client.delete_topic("gone")
        before = [await client.describe_topic(name) for name in ("orders", "wide")]
        async with client.producer() as producer:
            for number in range(20):
                await producer.send("wide", b"%d" % number, key=b"%d" % number)
        async with client.subscription("orders", "workers", mark="auto") as member:
            for number in range(5):
                assert (await anext(aiter(member))).value == b"%d" % number
        await client.admin.drain_broker(2)
        await one.order()
        await one.is_whole()
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
        assert one.changing.ring.record("a").drained == (2,)
        with pytest.raises(octopi.TopicExistsError):
            await client.create_topic("wide")
        await client.create_topic("new")
        await client.delete_topic("wide")
        assert [info.topic for info in await client.topics()] == ["new", "orders"]


@simulated(seeds=3, brokers=1, oracle=False)
async def test_processes_are_killed_while_the_cluster_changes_over(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        random = cluster.random
        victims = random.sample(["r", *THREE], random.randint(1, 3))

        async def strike(victim: str) -> None:
            await cluster.sleep(random.choice([0.0, 0.02, 0.2, 1.0]) * random.random())
            kill = random.choice([cluster.kill, cluster.lose_power])
            kill(victim, restart_s=0.2 + 3 * random.random())

        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.02 * random.random()):  # the command is killed, too
                nursery.start_soon(one.order)
                for victim in victims:
                    nursery.start_soon(strike, victim)
                await trio.sleep_forever()
        await one.order()
        await one.is_whole()


@pytest.mark.parametrize("step", ["R2a", "R2b", "R3a", "R3b"])
@pytest.mark.parametrize("loses_power", [False, True])
def test_the_register_is_killed_at_each_step_of_the_commit_point(
    step: str, loses_power: bool
) -> None:
    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with changed(cluster) as one:
            strike = cluster.lose_power if loses_power else cluster.kill
            cluster.at(step, lambda host: strike(host, restart_s=1.0), who="r")
            await one.order()
            await one.is_whole()

    scenario()


async def _hands_over_too_early(
    self: HandingOver, message: m.HandOverToRing
) -> m.ClusterHandedOver:
    """A mistake: brokers are told before the entry is durable."""

    record = self._next_record()
    self._decisions.persist(ClusterDecision([HandedOver(encode_cluster(record))]))
    self.is_done.set()
    await self._environment.clock.sleep_until(self._environment.clock.now() + 1.0)
    return m.ClusterHandedOver(message.request, [one.address for one in record.growths[0].members])


def test_a_register_that_tells_before_its_entry_is_durable_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HandingOver, "order", _hands_over_too_early)

    @simulated(brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with changed(cluster) as one:
            with suppress(OctopiError), trio.move_on_after(0.5):
                await hand_over_to_ring(one.operator)
            cluster.lose_power("r", restart_s=0.5)
            await one.changing.in_ring()
            await cluster.sleep(3.0)
            register = one.changing.register_nodes["r"]
            assert register.handing_over.is_done.is_set(), "the register decides beside the ring"

    with pytest.raises(AssertionError, match="decides beside the ring"):
        scenario()


def leaders_die_between_two_pieces(seed: int = 1) -> None:
    """Have the first leaders of partitions die when they have written some of the topics down."""
    begun: list[PartitionId] = []

    async def hang_after_one(
        logs: TopicLogs, partition: PartitionId, entries: list[Entry]
    ) -> Refusal | None:
        refusal = await appended(logs, partition, entries)
        if partition not in begun:
            begun.append(partition)
            await trio.sleep_forever()
        return refusal

    @simulated(seed=seed, brokers=1, oracle=False)
    async def scenario(cluster: Cluster) -> None:
        async with changed(cluster) as one:
            names = [f"topic-{number}" for number in range(16)]
            async with one.client.producer() as producer:
                for name in names:
                    await one.client.create_topic(name)
                    await producer.send(name, name.encode())
            await one.order()
            await cluster.eventually(lambda: len(begun) == 8, "all have begun", within_s=30.0)
            for name in THREE:  # whoever leads next has read nothing of the log before
                cluster.kill(name, restart_s=0.5)
            await cluster.sleep(1.0)
            await one.is_whole()
            assert [info.topic for info in await one.client.topics()] == ["orders", *sorted(names)]
            for name in names:
                assert await stored(one.client, name) == [name.encode()]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(led, "TOPIC_ENTRIES_AT_ONCE_MAX", 1)
        patch.setattr(led, "appended", hang_after_one)
        scenario()


def test_leaders_that_die_while_they_write_topics_down_remove_no_log() -> None:
    leaders_die_between_two_pieces()


def test_a_leader_that_removes_logs_before_all_topics_are_written_down_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HostedTopics, "awaits_topics", lambda self, partition: False)

    def some() -> None:
        for seed in range(2, 8):  # which log is read first differs
            leaders_die_between_two_pieces(seed)

    with pytest.raises((AssertionError, OutcomeUnknownError, ExceptionGroup)) as noticed:
        some()
    if isinstance(noticed.value, ExceptionGroup):  # of many receipts
        assert noticed.value.split(OutcomeUnknownError)[1] is None


# --- wrong orders --------------------------------------------------------------------------


@simulated(brokers=1, oracle=False)
async def test_a_register_says_what_has_to_be_done_before(cluster: Cluster) -> None:
    changing = ChangingCluster(cluster, THREE, prepared=False)
    await changing.joined()
    environment = await cluster.environment("client")
    async with connect([register_address("r")], environment=environment) as operator:
        with pytest.raises(RefusedError, match="broker 1 is not prepared") as refused:
            await hand_over_to_ring(operator)
        assert refused.value.status is Status.INVALID_OPTION
        for name in THREE:
            changing.join[name] = tuple(map(address, THREE))
            cluster.kill(name)
            cluster.restart(name)
        await changing.joined()
        await cluster.sleep(1.0)
        assert await hand_over_to_ring(operator, dry_run=True) == list(map(address, THREE))
        cluster.kill("b")
        await cluster.sleep(5.0)
        with pytest.raises(RefusedError, match="broker 2 is away: start it, or remove it"):
            await hand_over_to_ring(operator, dry_run=True)
        await operator.create_topic("still-decided")
        cluster.restart("b")
        await changing.joined()
        await cluster.sleep(1.0)
        await hand_over_to_ring(operator)
        await changing.in_ring()


@simulated(brokers=1, oracle=False)
async def test_brokers_with_wrong_flags_are_refused_in_words(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        changing = one.changing
        await one.order()
        await changing.in_ring()
        changing.join["a"] = ()  # the flags from before
        cluster.kill("a")
        cluster.restart("a")
        await cluster.eventually(lambda: "a" in changing.errors, "it is refused")
        assert "start it with --join" in str(changing.errors["a"][0])
        changing.join["a"] = tuple(map(address, THREE))
        await one.is_whole()


def _text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_was_down_takes_over_when_it_is_back(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        changing = one.changing
        await one.at_the_commit_point(lambda: cluster.kill("c"))
        await changing.ring.ideal("a", "b")
        count = len(one.load.acknowledged)
        await cluster.eventually(lambda: one.load.has(count + 20), "two go on", within_s=30.0)
        changing.join["c"] = ()
        cluster.restart("c")
        await cluster.eventually(lambda: "c" in changing.errors, "it is refused")
        assert "has no register any more: start the broker with --join" in _text(
            changing.errors["c"][0]
        )
        changing.join["c"] = tuple(map(address, THREE))
        await one.is_whole()


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_joins_the_ring_later_gets_its_share(cluster: Cluster) -> None:
    async with changed(cluster) as one:
        await one.order()
        await one.changing.in_ring()
        ring = one.changing.ring
        ring.start("d", THREE)
        ring.start("e", THREE)
        await ring.ideal(*THREE, "d", "e")

        def has_parts(name: str) -> bool:
            return any(
                replica.machine.leader is not None for replica in ring.nodes[name].replicas.replicas
            )

        await cluster.eventually(
            lambda: has_parts("d") and has_parts("e"), "they lead something", within_s=240.0
        )
        one.load.stops = True
        await cluster.eventually(
            lambda: len(one.load.acknowledged) == one.load.sent_count, "all is acknowledged"
        )
        found = await stored(one.client, "orders")
        assert found == [b"%d" % number for number in range(one.load.sent_count)]


@simulated(brokers=1, oracle=False)
async def test_three_registers_hand_over_though_the_active_one_is_killed(cluster: Cluster) -> None:
    registers = ("r", "s", "t")
    async with changed(cluster, registers=registers) as one:
        active = next(
            name
            for name, node in one.changing.register_nodes.items()
            if node.controller.state.brokers
        )
        cluster.at("R2b", lambda host: cluster.kill(host, restart_s=2.0), who=active)
        await one.order()
        await one.is_whole()


@simulated(brokers=1, oracle=False)
async def test_a_register_that_has_handed_over_names_a_broker_to_who_asks_for_a_stream(
    cluster: Cluster,
) -> None:
    async with changed(cluster) as one:
        await one.order()
        await one.changing.in_ring()
        register = one.changing.register_nodes["r"]
        streams = RegisterStreams(register.environment, register)

        async def nowhere(url: str) -> trio.abc.HalfCloseableStream:
            raise AssertionError(f"it is forwarded to {url}")

        for method in ("PUT", "POST", "GET", "HEAD", "DELETE"):
            for name in ("orders", "new"):
                request = HttpRequest(method, f"/v1/streams/{name}", {}, {}, Asker("test"))
                answer = await streams.answer(request, StreamCaller("test", nowhere))
                assert answer.status == 503
                error = json.loads(answer.body)["error"]
                assert error["status"] == "not_leader"
                assert (
                    "this cluster has no register any more: its brokers decide; ask ws://"
                    in (error["reason"])
                )
        assert [info.topic for info in await one.client.topics()] == ["orders"]
