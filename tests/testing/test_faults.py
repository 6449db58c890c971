"""Injected faults: each strikes the named host, for the given time."""

from __future__ import annotations

import pytest
import trio

import octopi
import octopi.testing
from octopi.simulation.faults.actions import BitFlip, JumpClock, Kill
from octopi.testing import Cluster, Host, MisuseError, simulated


async def topic(cluster: Cluster, client: octopi.Client) -> str:
    """A topic of one partition."""
    await client.create_topic("orders", 1)
    return "orders"


async def send(client: octopi.Client, value: bytes = b"a hat") -> None:
    async with client.producer() as producer:
        await producer.send("orders", value)


@simulated()
async def test_hosts_are_named(cluster: Cluster) -> None:
    async with cluster.client("alice"), cluster.client():
        assert cluster.register == "register"
        assert cluster.brokers == ["broker-1", "broker-2", "broker-3"]
        assert cluster.hosts == ["register", *cluster.brokers, "alice", "client-1"]
        assert all(cluster.is_up(host) for host in cluster.hosts)


@simulated()
async def test_a_topic_has_a_leader_and_followers(cluster: Cluster) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        everybody = {cluster.leader(name), *cluster.followers(name)}
        assert everybody == set(cluster.brokers)
        assert len(cluster.followers(name)) == 2


@simulated()
async def test_when_a_leader_is_killed_another_one_takes_over(cluster: Cluster) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        await send(client)
        first = cluster.leader(name)
        assert cluster.kill(first)
        assert not cluster.is_up(first)
        await send(client)
        assert cluster.leader(name) != first
        assert cluster.restart(first)
        await cluster.settle()


@simulated()
async def test_a_stopped_host_can_not_be_killed_and_a_running_one_not_started(
    cluster: Cluster,
) -> None:
    assert not cluster.restart("broker-1")
    assert cluster.kill("broker-1")
    for fault in (cluster.kill, cluster.lose_power, cluster.stop, cluster.pause, cluster.resume):
        assert not fault("broker-1")


@simulated()
async def test_a_killed_host_restarts_after_the_given_time(cluster: Cluster) -> None:
    cluster.kill("broker-1", restart_s=2.0)
    await cluster.sleep(1.9)
    assert not cluster.is_up("broker-1")
    await cluster.sleep(0.2)
    assert cluster.is_up("broker-1")


@simulated()
async def test_a_broker_that_stops_hands_its_leaderships_over_first(cluster: Cluster) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        first = cluster.leader(name)
        assert cluster.stop(first)
        assert not cluster.stop(first)
        await cluster.eventually(lambda: not cluster.is_up(first))
        assert cluster.leader(name) != first


@simulated()
async def test_a_paused_leader_is_replaced_and_goes_on_as_a_follower(cluster: Cluster) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        first = cluster.leader(name)
        assert cluster.pause(first)
        assert not cluster.pause(first)
        await cluster.eventually(lambda: cluster.leader(name) != first)
        assert cluster.is_up(first)
        assert cluster.resume(first)
        await send(client)
        await cluster.settle()


@simulated()
async def test_the_last_copy_of_committed_records_does_not_lose_power(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:
        await topic(cluster, client)
        await send(client)
        # Nothing was synced yet, so two copies are gone with the power.
        struck = [cluster.lose_power(host) for host in cluster.brokers]
        assert struck.count(True) == 2
        await cluster.settle()
        async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
            assert [message.value async for message in consumer] == [b"a hat"]


@simulated()
async def test_a_wiped_broker_gets_its_replicas_back_when_the_cluster_settles(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        await send(client)
        assert cluster.wipe("broker-2")
        assert not cluster.is_up("broker-2")
        cluster.restart("broker-2")
        await cluster.settle()
        assert {cluster.leader(name), *cluster.followers(name)} == set(cluster.brokers)


@simulated(seeds=3)
async def test_a_full_disk_takes_messages_again_when_it_has_space(cluster: Cluster) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        await send(client)
        cluster.fill_disk(cluster.leader(name), seconds=1.0)
        await send(client)
        await cluster.settle()


@simulated()
async def test_a_split_cluster_goes_on_in_the_part_with_the_register(cluster: Cluster) -> None:
    async with cluster.client("alice") as client:
        name = await topic(cluster, client)
        first = cluster.leader(name)
        others = set(cluster.hosts) - {first}
        cluster.split({first}, others)
        await send(client)
        assert cluster.leader(name) != first
        cluster.heal()
        await cluster.settle()
        assert {cluster.leader(name), *cluster.followers(name)} == set(cluster.brokers)


@simulated()
async def test_an_isolated_client_reaches_no_node_until_the_network_is_healed(
    cluster: Cluster,
) -> None:
    async with cluster.client("alice", request_timeout_s=2.0) as client:
        cluster.isolate("alice")
        with pytest.raises(octopi.ConnectionLostError):
            await client.topics()
        for host in cluster.hosts:
            if host != "alice":
                cluster.mend("alice", host)
        assert await client.topics() == []


@simulated()
async def test_a_cut_ends_when_its_time_is_over(cluster: Cluster) -> None:
    async with cluster.client("alice") as client:
        began = cluster.now
        cluster.cut("alice", "register", seconds=3.0)
        await client.topics()
        assert 3.0 < cluster.now - began < 10.0


@simulated()
async def test_a_slow_route_delays_each_message(cluster: Cluster) -> None:
    async with cluster.client("alice") as client:
        await client.topics()
        cluster.slow("alice", latency_s=0.5)
        began = cluster.now
        await client.topics()
        assert 1.0 <= cluster.now - began < 1.1


@simulated()
async def test_every_other_fault_of_the_simulator_can_be_injected_too(cluster: Cluster) -> None:
    environment = await cluster.environment("clock")
    before = environment.clock.wall_ms()
    assert cluster.strike(JumpClock(3600.0), "clock")
    assert environment.clock.wall_ms() == before + 3_600_000


@simulated()
async def test_healing_ends_all_injected_faults(cluster: Cluster) -> None:
    async with cluster.client("alice") as client:
        await topic(cluster, client)
        trigger = cluster.at("P3b", cluster.kill)
        cluster.kill("broker-1")
        cluster.pause("broker-2")
        cluster.fill_disk("broker-3")
        cluster.isolate("alice")
        cluster.heal()
        await send(client)
        await cluster.settle()
        assert all(map(cluster.is_up, cluster.hosts))
        assert not trigger.happened


@simulated()
async def test_healing_neither_ends_programs_nor_starts_them(cluster: Cluster) -> None:
    async def program(host: Host) -> None:
        await trio.sleep_forever()

    programs = {name: cluster.program(name, program) for name in ("full", "dead", "dark")}
    cluster.fill_disk("full")
    cluster.kill("dead")
    cluster.lose_power("dark")
    await cluster.settle()
    assert [one.is_up for one in programs.values()] == [True, False, False]
    assert [one.life_count for one in programs.values()] == [1, 1, 1]


@simulated()
async def test_a_broker_with_bit_rot_gets_a_new_disk_when_the_cluster_settles(
    cluster: Cluster,
) -> None:
    async with cluster.client() as client:
        name = await topic(cluster, client)
        for _ in range(10):
            await send(client)
        await cluster.sleep(3)  # until it is on the device, where bits rot
        assert cluster.strike(BitFlip(), "broker-2")
        await cluster.sleep(3)
        await cluster.settle()
        assert {cluster.leader(name), *cluster.followers(name)} == set(cluster.brokers)


@simulated()
async def test_the_error_for_an_unknown_host_names_the_existing_ones(
    cluster: Cluster,
) -> None:
    calls = (
        lambda: cluster.kill("broker-4"),
        lambda: cluster.cut("broker-1", "broker-4"),
        lambda: cluster.split({"broker-1"}, {"broker-4"}),
        lambda: cluster.at("P3a", cluster.kill, who="broker-4"),
        lambda: cluster.is_up("broker-4"),
    )
    for call in calls:
        with pytest.raises(MisuseError, match="'broker-4'; there are register, broker-1, broker-2"):
            call()


@simulated()
async def test_asking_for_a_leader_needs_an_existing_topic_and_partition(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="no topic 'orders'; there is none at all"):
        cluster.leader("orders")
    async with cluster.client() as client:
        info = await client.create_topic("orders", 2)
        with pytest.raises(MisuseError, match=r"has the partitions \d, \d: name one"):
            cluster.leader("orders")
        with pytest.raises(MisuseError, match="not 99"):
            cluster.leader("orders", 99)
        with pytest.raises(MisuseError, match="there is orders"):
            cluster.leader("order")
        assert cluster.leader("orders", info.partitions[0].partition) in cluster.brokers


@simulated()
async def test_the_host_of_the_test_can_not_be_killed(cluster: Cluster) -> None:
    async with cluster.client("alice"):
        for fault in (cluster.kill, cluster.lose_power, cluster.pause, cluster.stop, cluster.wipe):
            with pytest.raises(MisuseError, match=r"the test itself; .* cluster.program"):
                fault("alice")
        with pytest.raises(MisuseError, match="the test itself"):
            cluster.strike(Kill(), "alice")


@simulated()
async def test_a_power_failure_takes_unsynced_bytes_of_the_disk_of_a_program(
    cluster: Cluster,
) -> None:
    seen: list[list[bytes]] = []

    async def program(host: Host) -> None:
        disk = host.disk
        names = ("synced", "not synced")
        seen.append([disk.read_file(one) for one in names if one in disk.list_directory("")])
        if host.life == 1:
            await disk.replace_file("synced", b"1")
            disk.open("not synced", create=True).append(b"2")
        await trio.sleep_forever()

    cluster.program("keeper", program)
    await cluster.sleep(1)
    cluster.kill("keeper")
    cluster.restart("keeper")
    await cluster.sleep(1)
    cluster.lose_power("keeper")
    cluster.restart("keeper")
    await cluster.sleep(1)
    assert seen[:2] == [[], [b"1", b"2"]]
    assert seen[2][0] == b"1"
    cluster.wipe("keeper")
    cluster.restart("keeper")
    await cluster.sleep(1)
    assert seen[3] == []
