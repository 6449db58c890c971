"""Brokers that were away, or hung, come back with what they have and fetch what they miss."""

import signal
from pathlib import Path

import pytest
import trio

import octopi
from octopi.environment import TraceEvent
from octopi.errors import RefusedError
from octopi.tracing import steps
from tests.kit.named_clusters import (
    Deciders,
    each_way,
    each_with_registers,
    local_cluster,
    process_cluster,
    start_together,
)
from tests.kit.traffic import traffic

LEAVES_S = 4.0
"""A hung follower is out of the in-sync set sooner: it is noticed after a second of silence,
and may lag for another."""


@pytest.mark.process
@each_way
async def test_a_broker_that_comes_back_is_listed_and_in_sync_again(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders") as flow:
            await flow.progress(50)
            away = (await cluster.followers("orders"))[0]
            address = cluster.address(away)
            await cluster.kill(away)
            assert address not in (await cluster.in_sync("orders", 2)).readers
            await flow.progress(50)
            await cluster.restart(away)
            assert address in (await cluster.in_sync("orders", 3)).readers
            async with octopi.connect(cluster.url) as client:
                brokers = (await client.admin.describe_cluster()).brokers
            (listed,) = [one for one in brokers if one.address == address]
            assert (listed.live, listed.incarnation) == (True, 2)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.parametrize("brokers", [2, 3])
@each_way
async def test_a_follower_that_was_away_fetches_only_what_it_misses(
    tmp_path: Path, brokers: int, deciders: Deciders
) -> None:
    """Early failure: it dies while producers go on, and comes back while they do."""
    fetched: list[tuple[int, int]] = []

    def note(step: TraceEvent) -> None:
        if isinstance(step, steps.P3Replicated):
            fetched.append((step.offset, step.end))

    async with local_cluster(tmp_path, brokers, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(200)
            away = (await cluster.followers("orders"))[0]
            await cluster.kill(away)
            (directory,) = [one for one in cluster.data_dirs if one.path.name == away]
            had = directory.log("orders", flow.producing[0].receipts[0].partition)
            assert had
            await flow.progress(200)
            cluster.traces[away] = note
            await cluster.restart(away)
            await cluster.in_sync("orders", brokers)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, brokers)
        starts, ends = zip(*fetched, strict=True)
        assert starts == (len(had), *ends[:-1]), "from where it ended, each byte once"


@each_way
async def test_a_follower_catches_up_while_nobody_produces(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with local_cluster(tmp_path, deciders=deciders) as cluster:
        away = ""
        async with traffic(cluster.url, "orders") as flow:
            await flow.progress(50)
            away = (await cluster.followers("orders"))[0]
            await cluster.kill(away)
            await flow.progress(500)
        await cluster.restart(away)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.process
@each_with_registers
async def test_all_followers_restart_and_catch_up(tmp_path: Path, deciders: Deciders) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2, consumers=2) as flow:
            await flow.progress(100)
            followers = await cluster.followers("orders")
            for name in followers:
                await cluster.kill(name)
            await flow.progress(100)
            for name in followers:
                await cluster.restart(name)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.process
@each_way
async def test_a_cluster_that_was_stopped_and_started_again_goes_on(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        brokers = list(cluster.brokers.values())
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
        await flow.check_replicas(cluster.data_dirs, 3)
        for node in (*brokers, *cluster.registers):
            assert await trio.to_thread.run_sync(node.terminate) == 0
        await start_together(cluster.registers)
        await start_together(brokers)
        await flow.check_replicas(cluster.data_dirs, 3)
        async with traffic(cluster.url, "orders", producers=0) as again:
            assert again.acknowledged_count == 0
        async with octopi.connect(cluster.url) as client, client.producer() as producer:
            await flow.producing[0].burst(producer, "orders")
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.process
@each_way
async def test_a_hung_follower_is_left_behind_and_catches_up_when_it_goes_on(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            hung = cluster.brokers[(await cluster.followers("orders"))[0]]
            hung.signal(signal.SIGSTOP)
            try:
                with trio.fail_after(LEAVES_S):
                    place = await cluster.in_sync("orders", 2)
                assert hung.url not in place.readers
                await flow.progress(200, reading=False)  # a reader may hang on the hung broker
            finally:
                hung.signal(signal.SIGCONT)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


@pytest.mark.process
@each_way
async def test_a_hung_leader_is_replaced_and_follows_when_it_goes_on(
    tmp_path: Path, deciders: Deciders
) -> None:
    async with process_cluster(tmp_path, deciders=deciders) as cluster:
        # A client learns of a broker that hangs by the time-out of its requests.
        async with traffic(cluster.url, "orders", producers=2, request_timeout_s=2) as flow:
            await flow.progress(100)
            name = await cluster.leader("orders")
            hung = cluster.brokers[name]
            hung.signal(signal.SIGSTOP)
            try:
                await flow.progress(100, reading=False)
                assert await cluster.leader("orders") != name
            finally:
                hung.signal(signal.SIGCONT)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


async def test_a_broker_that_lost_its_data_is_refused_its_id_however_often_it_asks(
    tmp_path: Path,
) -> None:
    """It comes sooner than it is missed, while the in-sync set still names it."""
    async with local_cluster(tmp_path, brokers=0) as cluster:
        for number in (1, 2, 3):
            await cluster.add(broker=number)
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            leader = await cluster.leader("orders")
            lost, other = await cluster.followers("orders")
            await cluster.kill(other)
            await cluster.in_sync("orders", 2)
            await cluster.kill(lost)
            cluster.data_dir(lost).rename(tmp_path / "lost")
            for _ in range(3):  # what supervises it starts it again
                with pytest.RaisesGroup(
                    pytest.RaisesExc(RefusedError, match="belongs to another data directory"),
                    flatten_subgroups=True,
                ):
                    await cluster.restart(lost)
            cluster.data_dir(lost).rename(tmp_path / "empty")
            (tmp_path / "lost").rename(cluster.data_dir(lost))
            await cluster.restart(lost)
            await cluster.kill(leader)
            await cluster.restart(leader)
            await cluster.restart(other)
            await cluster.in_sync("orders", 3)
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)


async def test_a_broker_that_lost_its_data_is_a_new_one_and_takes_the_place_of_the_old(
    tmp_path: Path,
) -> None:
    async with local_cluster(tmp_path) as cluster:
        async with traffic(cluster.url, "orders", producers=2) as flow:
            await flow.progress(100)
            lost = (await cluster.followers("orders"))[0]
            leaving = int(lost.removeprefix("broker-"))
            await cluster.kill(lost)
            (cluster.data_dir(lost)).rename(tmp_path / "lost")
            await cluster.in_sync("orders", 2)
            await cluster.restart(lost)
            place = await cluster.place("orders")
            async with octopi.connect(cluster.url) as client:
                await client.admin.move_replica(place.partition, leaving, 4, timeout_s=20)
            place = await cluster.in_sync("orders", 3)
            assert 4 in place.in_sync
            assert leaving not in place.replicas
            await flow.progress(50)
        await flow.check_replicas(cluster.data_dirs, 3)
