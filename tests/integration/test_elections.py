"""Leaders die: another one leads, in a new epoch, and nothing that was acknowledged is gone."""

from pathlib import Path

import pytest
import trio

import octopi
from octopi.environment import TraceEvent
from octopi.tracing import steps
from tests.kit.named_clusters import (
    Deciders,
    LocalCluster,
    NamedBrokers,
    ProcessCluster,
    each_way,
    local_cluster,
    process_cluster,
)
from tests.kit.replicas import DataDirectory, identical
from tests.kit.traffic import Producing, Traffic, traffic


class Leaders:
    """Who led, epoch by epoch, as the register tells it while things happen."""

    def __init__(self, cluster: NamedBrokers, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self.seen: dict[int, int] = {}

    async def note(self) -> str:
        """Note who leads now; return its name."""
        place = await self._cluster.place(self._topic)
        assert place.leader is not None
        assert self.seen.setdefault(place.epoch, place.leader) == place.leader
        assert place.epoch == max(self.seen), "epochs only grow"
        return self._cluster.named(place.leader_address)

    def check(self, flow: Traffic) -> None:
        """Every message was acknowledged in an epoch that was seen, and epochs grew along the
        log."""
        receipts = sorted(
            (receipt for one in flow.producing for receipt in one.receipts),
            key=lambda receipt: receipt.offset,
        )
        epochs = [receipt.epoch for receipt in receipts]
        assert epochs == sorted(epochs)
        assert set(epochs) <= self.seen.keys()


async def kill_leader_after_leader(cluster: NamedBrokers, topic: str, times: int) -> None:
    """Kill who leads, see the next one lead, restart the former, and again."""
    async with traffic(cluster.url, topic, producers=2, consumers=2) as flow:
        leaders = Leaders(cluster, topic)
        for _ in range(times):
            await flow.progress(100)
            before = await leaders.note()
            await cluster.kill(before)
            await flow.progress(50)
            assert await leaders.note() != before
            await cluster.restart(before)
            await cluster.in_sync(topic, min(3, len(cluster.names)))
            await leaders.note()
        await flow.progress(50)
    leaders.check(flow)
    await flow.check_replicas(cluster.data_dirs, min(3, len(cluster.names)))


async def test_of_two_brokers_the_follower_becomes_the_one_leader_of_a_new_epoch(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path, brokers=2) as cluster:
        await kill_leader_after_leader(cluster, "orders", times=3)


@each_way
async def test_of_many_brokers_one_follower_becomes_the_one_leader_of_a_new_epoch(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, brokers=5, deciders=deciders) as cluster:
        await kill_leader_after_leader(cluster, "orders", times=3)


@pytest.mark.process
@each_way
async def test_a_leader_process_killed_while_producing_is_replaced(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        await kill_leader_after_leader(cluster, "orders", times=2)


async def read_all(cluster: NamedBrokers, topic: str) -> list[bytes]:
    async with (
        octopi.connect(cluster.url) as client,
        client.consumer(topic, start="earliest", stop_at_end=True) as consumer,
    ):
        return [message.value async for message in consumer]


@pytest.mark.process
@each_way
async def test_a_leader_killed_while_its_followers_are_idle_is_replaced(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        await cluster.create("orders")
        sent = Producing("alice")
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            await sent.burst(producer, "orders", 50)
            before = await cluster.leader("orders")
            await cluster.kill(before)
            await cluster.leader_after("orders", before)
            expected = [sent.value(number) for number in range(50)]
            assert await read_all(cluster, "orders") == expected
            await cluster.restart(before)
            await cluster.in_sync("orders", 3)
            await sent.burst(producer, "orders", 50)
        (held,) = (await identical(cluster.url, "orders", cluster.data_dirs, 3)).values()
        assert [one.value for one in held] == [sent.value(number) for number in range(100)]


class Unforwarded:
    """Ends the leader when it has appended a batch that it forwards to nobody any more."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self.armed_for = ""
        self.log_end = 0

    def trace(self, step: TraceEvent) -> None:
        if isinstance(step, steps.P2Appended) and self.armed_for:
            self._cluster.node(self.armed_for).scope.cancel()
            self.armed_for = ""
            self.log_end = step.end


@pytest.mark.parametrize("brokers", [2, 3])
async def test_an_old_leader_comes_back_cuts_what_nobody_else_has_and_follows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, brokers: int
) -> None:
    async with local_cluster(tmp_path, brokers=0) as cluster:
        trap = Unforwarded(cluster)
        for number in range(1, brokers + 1):
            cluster.traces[f"broker-{number}"] = trap.trace
            await cluster.add()
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(50)
            for _ in range(20):  # what is on its way already may take the batch to a follower
                old = trap.armed_for = await cluster.leader("orders")
                await flow.progress(50)
                assert trap.log_end, "the leader died with a batch that it had not forwarded"
                await cluster.kill(old)
                (directory,) = [one for one in cluster.data_dirs if one.path.name == old]
                partition = flow.producing[0].receipts[0].partition
                tail = log_of(directory, "orders", partition)
                assert len(tail) >= trap.log_end
                await cluster.leader_after("orders", old)
                await cluster.restart(old)
                await cluster.in_sync("orders", brokers)
                if "uncommitted records are cut" in caplog.messages:
                    break
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, brokers)
        assert "uncommitted records are cut" in caplog.messages
        # The producer's repetition is the same bytes again, perhaps in the same place, but
        # it is the new leader's.
        again = [one for sent in flow.producing for one in sent.receipts if one.offset < len(tail)]
        assert max(one.epoch for one in again) > min(one.epoch for one in again)


def log_of(directory: DataDirectory, topic: str, partition: int) -> bytes:
    content = directory.log(topic, partition)
    assert content is not None
    return content


@pytest.mark.process
@pytest.mark.parametrize(
    ("brokers", "deciders"),
    [
        (3, Deciders.ONE_REGISTER),
        (5, Deciders.ONE_REGISTER),
        (3, Deciders.THREE_REGISTERS),
        (5, Deciders.BROKERS),  # with 3 no majority is left that could decide
    ],
)
async def test_brokers_die_one_after_another_and_the_last_one_serves_everything(
    tmp_path: Path, brokers: int, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, brokers, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2, consumers=2) as flow:
            left = brokers
            await flow.progress(100)
            place = await cluster.place("orders")
            replicas = len(place.in_sync)
            while left > brokers - replicas + 1:
                # One that lags on a busy machine is not in sync, and could not lead.
                await cluster.in_sync("orders", replicas - (brokers - left))
                await cluster.kill(await cluster.leader("orders"))
                left -= 1
                await flow.progress(50)
        values = await read_all(cluster, "orders")
        assert len(values) == flow.acknowledged_count
        assert len((await cluster.place("orders")).in_sync) == 1
        await restart_dead(cluster)
        await flow.check_replicas(cluster.data_dirs, replicas)


@pytest.mark.process
async def test_where_brokers_decide_the_last_of_three_loses_nothing_and_waits_for_another_one(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path, deciders=Deciders.BROKERS) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            place = await cluster.place("orders")
            async with octopi.connect(cluster.url) as client:
                await client.create_topic("refused", partition_ids=[place.partition])
            leader = cluster.named(place.leader_address)
            one, other = await cluster.followers("orders")
            await cluster.kill(one)
            await flow.progress(50)
            await cluster.kill(other)
            async with (
                octopi.connect(cluster.brokers[leader].url) as client,
                client.producer(delivery_timeout_s=4) as producer,
            ):
                with pytest.raises(octopi.DeliveryError):
                    await producer.send("refused", b"no majority says that it still leads")
            await cluster.restart(one)
            await flow.progress(50)
            await cluster.restart(other)
            await cluster.in_sync("orders", 3)
        await flow.check_replicas(cluster.data_dirs, 3)


async def restart_dead(cluster: ProcessCluster) -> None:
    for name in cluster.names:
        if not cluster.brokers[name].is_running:
            await cluster.restart(name)


@pytest.mark.process
async def test_a_register_killed_while_a_leader_is_replaced_finishes_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with process_cluster(tmp_path) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            leader = await cluster.leader("orders")
            # Both at once: nobody is told of the new epoch, if one was begun at all.
            await cluster.kill(leader)
            cluster.register.kill9()
            await trio.to_thread.run_sync(cluster.register.restart)
            await flow.progress(100)
            assert await cluster.leader("orders") != leader
            await cluster.restart(leader)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)
