"""Brokers that die during an election or a hand-over delay neither.

Members are played by the test where it matters when exactly a broker says what.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio

import octopi
from octopi.coordination.journal_entries import EpochAnnounced
from octopi.errors import Status
from octopi.operating_system import SystemClock
from octopi.roles.register.register_journal import open_register_journal
from octopi.transport.connection import Connection
from octopi.transport.handshake import open_node_connection
from octopi.wire import messages as m
from octopi.wire.endpoints import MEMBERSHIP
from tests.kit.cluster import Cluster, eventually, running_cluster
from tests.kit.disk import MemoryDisk
from tests.kit.join_secrets import MEMBER

SLOWNESS = 100
"""A second on a slow clock lasts so many."""


class SlowClock(SystemClock):
    """Time that hardly passes, so that who waits for a time-out waits for ever."""

    def now(self) -> float:
        return super().now() / SLOWNESS

    async def sleep_until(self, deadline: float) -> None:
        await super().sleep_until(super().now() + deadline - self.now())


class StretchedClock(SlowClock):
    """Time that is slow for whoever sleeps, too."""

    async def sleep_until(self, deadline: float) -> None:
        await trio.sleep(SLOWNESS * (deadline - self.now()))

    def timeout(self, seconds: float) -> trio.CancelScope:
        return super().timeout(SLOWNESS * seconds)


class Member:
    """A broker as the register sees it: it joins, confirms everything, and accepts an epoch
    when the test says so."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.broker = 0
        self.cluster = ""
        self.records: dict[int, m.PartitionRecord] = {}
        self.live: dict[int, bool] = {}
        self.announced: list[m.AnnounceEpoch] = []

    def take(self, message: object) -> None:
        match message:
            case m.InstallPartitions():
                self.records |= {one.partition: one for one in message.partitions}
                self.live |= {one.broker: one.live for one in message.brokers}
                self.connection.post(m.OrderCarriedOut(message.request, []))
            case m.InstallTopics():
                self.connection.post(m.OrderCarriedOut(message.request, []))
            case m.PrepareHandOver():
                self.connection.post(m.Done(message.request))
            case m.AnnounceEpoch():
                self.announced.append(message)

    async def join(self, broker: int | None, cluster: str) -> None:
        request = self.connection.next_request()
        join = m.Join(request, cluster, broker, 1, "first", [], None, f"ws://127.0.0.1:{request}")
        joined = await self.connection.request(join, m.Joined, 10)
        self.broker, self.cluster = joined.broker, joined.cluster

    async def accept(self, log_end: int = 0) -> None:
        """Wait for an announcement, accept it."""
        await eventually(lambda: bool(self.announced))
        epoch = self.announced[-1]
        self.connection.post(
            m.AcceptEpoch(
                epoch.partition, epoch.epoch, self.broker, 1, 1, 1, [m.LogEnd("0" * 16, log_end)]
            )
        )


@asynccontextmanager
async def members(cluster: Cluster, count: int, belong_to: str = "") -> AsyncIterator[list[Member]]:
    """Members that joined one after the other; again, if they are said to *belong_to* a cluster."""
    found: list[Member] = []
    async with trio.open_nursery() as nursery:
        for number in range(1, count + 1):
            connection = await open_node_connection(
                cluster.environment, cluster.register.url, MEMBERSHIP, "test", MEMBER
            )
            member = Member(connection)
            await nursery.start(connection.run, member.take)
            await member.join(number if belong_to else None, belong_to)
            found.append(member)
        yield found
        nursery.cancel_scope.cancel()


async def left(member: Member, others: list[Member]) -> None:
    """End a member; wait until a leader that counts on it was told."""
    await member.connection.close()
    await eventually(lambda: any(not one.live.get(member.broker, True) for one in others))


async def test_a_broker_that_dies_after_it_accepted_an_epoch_is_not_appointed_or_waited_for(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 3) as (first, second, third),
        octopi.connect(cluster.register.url) as client,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        (record,) = first.records.values()
        assert (record.leader, record.in_sync) == (1, [1, 2, 3])
        nursery.start_soon(client.admin.drain_broker, first.broker)
        await third.accept(log_end=9)
        await left(third, [first, second])
        await first.accept(log_end=5)
        await second.accept()
        await eventually(lambda: second.records[record.partition].epoch == 2)
        decided = second.records[record.partition]
        assert (decided.leader, decided.in_sync) == (2, [1, 2])


async def test_a_replica_stays_where_it_is_if_the_replica_that_replaces_it_dies(
    tmp_path: Path,
) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 3) as (first, second, third),
        octopi.connect(cluster.register.url) as client,
        cluster.connection(cluster.register.url) as register,
        trio.open_nursery() as nursery,
    ):
        await client.create_topic("orders")
        (record,) = first.records.values()
        move = m.MoveReplica(register.next_request(), record.partition, 1, 2)
        refusals: list[object] = []
        register.ask(move, refusals.append)
        await second.accept()
        await left(second, [first])
        for member in (first, third):
            nursery.start_soon(member.accept)
        await eventually(lambda: bool(refusals), within_s=15)
        (refusal,) = refusals
        assert isinstance(refusal, m.Failure)
        assert refusal.status == Status.NOT_READY
        await eventually(lambda: first.records[record.partition].epoch == 2)
        decided = first.records[record.partition]
        assert (sorted(decided.replicas), decided.in_sync) == ([1, 2, 3], [1, 3])


async def test_a_register_that_stops_replaces_no_leader(tmp_path: Path) -> None:
    async with (
        running_cluster(tmp_path, brokers=0) as cluster,
        members(cluster, 3) as (first, second, third),
    ):
        async with octopi.connect(cluster.register.url) as client:
            await client.create_topic("orders")
        await cluster.stop(cluster.register)
        journal, entries = await open_register_journal(
            cluster.environment, f"{tmp_path}/register/journal"
        )
        await journal.close()
        assert not [one for one in entries if isinstance(one, EpochAnnounced)]
        assert not [one for one in (first, second, third) if one.announced]


async def test_a_change_under_way_is_not_kept_waiting_when_the_register_restarts(
    tmp_path: Path,
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        async with (
            members(cluster, 3) as (first, second, third),
            octopi.connect(cluster.register.url) as client,
        ):
            await client.create_topic("orders")
            (record,) = first.records.values()
            await third.connection.close()
            await first.connection.close()  # it leads
            await eventually(lambda: bool(second.announced))
            address = cluster.register.url.removeprefix("ws://")
            await cluster.kill(cluster.register)
        cluster.environment = attrs.evolve(cluster.environment, clock=StretchedClock())
        await cluster.start_register(listen=address)
        async with members(cluster, 3, belong_to=first.cluster) as (first, second, third):
            await first.accept()
            await second.accept()
            assert first.records[record.partition].epoch == 1, "the third is still expected"
            await third.accept()
            await eventually(lambda: first.records[record.partition].epoch == 2, SLOWNESS / 4)
            assert first.records[record.partition].in_sync == [1, 2, 3]


async def test_no_broker_or_client_is_told_a_decision_that_is_not_durable(tmp_path: Path) -> None:
    disk = MemoryDisk()
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        cluster.environment = attrs.evolve(cluster.environment, disk=disk)
        await cluster.start_register()
        async with (
            members(cluster, 2) as (first, second),
            octopi.connect(cluster.register.url) as client,
            trio.open_nursery() as creating,
        ):

            async def away() -> bool:
                return not (await client.admin.describe_cluster()).brokers[1].live

            synced = disk.calls.count("sync")
            with disk.syncs_held():
                creating.start_soon(client.create_topic, "orders")
                await eventually(lambda: disk.calls.count("sync") > synced)
                await second.connection.close()
                with trio.fail_after(5):
                    while not await away():  # noqa: ASYNC110
                        await trio.sleep(0.01)
                await away()  # time enough to be told
                assert not first.records
            await eventually(lambda: bool(first.records))
        nursery.cancel_scope.cancel()


async def test_a_message_waits_for_no_broker_that_died_before_it_followed(tmp_path: Path) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        quick = cluster.environment
        cluster.environment = attrs.evolve(quick, clock=SlowClock())
        await cluster.start_broker()
        cluster.environment = quick
        async with (
            members(cluster, 1) as (other,),
            octopi.connect(cluster.register.url) as client,
            client.producer() as producer,
        ):
            pending = await producer.submit("orders", b"first")
            await eventually(lambda: bool(other.records))
            (record,) = other.records.values()
            assert (record.leader, record.in_sync) == (1, [1, 2])
            await other.connection.close()
            with trio.fail_after(SLOWNESS / 4):
                await pending
