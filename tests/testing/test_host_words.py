"""Faults name hosts by what they are: the leader of a topic, the second register, the sequencer."""

from __future__ import annotations

import pytest

import octopi
import octopi.testing
from octopi.testing import Cluster, Host, MisuseError, simulated


@simulated()
async def test_the_leader_of_a_topic_is_struck_whoever_it_is(cluster: Cluster) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        leader = cluster.leader("orders")
        assert cluster.host("leader:orders") == cluster.coordinator("orders") == leader
        assert cluster.host("follower:orders") in cluster.followers("orders")
        assert cluster.kill("leader:orders", restart_s=1.0)
        assert not cluster.is_up(leader)
        await producer.send("orders", b"a hat")
        assert cluster.leader("orders") != leader
        assert cluster.isolate("leader:orders/" + str(await partition(client)), seconds=0.5)


async def partition(client: octopi.Client) -> int:
    """The number of the only partition."""
    async with client.producer() as producer:
        return (await producer.send("orders", b"a hat")).partition


@simulated()
async def test_a_planned_fault_strikes_who_is_it_then(cluster: Cluster) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        first = cluster.leader("orders")
        cluster.kill("leader:orders", step="P2a", occurrence=2, restart_s=5.0)
        cluster.kill(first, restart_s=5.0)
        for _ in range(3):
            await producer.send("orders", b"a hat")
        assert not cluster.is_up(first)
        assert sum(not cluster.is_up(broker) for broker in cluster.brokers) == 2


@simulated(registers=3, brokers=3)
async def test_registers_are_named_by_number_and_by_what_they_do(cluster: Cluster) -> None:
    assert cluster.registers == ["register", "register-2", "register-3"]
    assert cluster.host("register:2") == "register-2"
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        active = cluster.host("active")
        assert cluster.host("standby") != active
        assert cluster.kill("active", restart_s=2.0)
        await producer.send("orders", b"a hat")
        await client.create_topic("parcels", 1)
        assert cluster.host("active") != active
        await cluster.settle()


@simulated(ring=True)
async def test_a_cluster_without_a_register_has_leaders_and_no_register(cluster: Cluster) -> None:
    assert cluster.registers == []
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("orders", 1)
        await producer.send("orders", b"a hat")
        assert cluster.kill("leader:orders", restart_s=1.0)
        await producer.send("orders", b"a hat")
        with pytest.raises(MisuseError, match="no register 1"):
            cluster.kill("register:1")


@simulated()
async def test_the_sequencer_of_a_topic_in_memory_is_struck(cluster: Cluster) -> None:
    async with cluster.client() as client, client.producer() as producer:
        await client.create_topic("prices", 1, kind="relay")
        await producer.send("prices", b"1")
        sequencer = cluster.sequencer("prices")
        assert cluster.host("relay:prices") != sequencer
        assert cluster.kill("sequencer:prices", restart_s=1.0)
        await producer.send("prices", b"2")
        assert cluster.sequencer("prices") != sequencer


@simulated()
async def test_a_word_that_means_nobody_says_what_there_is(cluster: Cluster) -> None:
    with pytest.raises(MisuseError, match="there is no topic 'orders'"):
        cluster.kill("leader:orders")
    with pytest.raises(MisuseError, match=r"no register 2; there are 1.*registers=3"):
        cluster.kill("register:2")
    with pytest.raises(MisuseError, match="words such as leader:TOPIC"):
        cluster.kill("the leader")
    async with cluster.client() as client:
        await client.create_topic("orders", 1)
        with pytest.raises(MisuseError, match="no sequencer"):
            cluster.kill("sequencer:orders")
        with pytest.raises(MisuseError, match="number of a partition"):
            cluster.kill("leader:orders/one")


@simulated()
async def test_a_program_may_have_a_name_that_looks_like_a_word(cluster: Cluster) -> None:
    async def wait(host: Host) -> None:
        await cluster.sleep(5)

    cluster.program("leader:none", wait)
    assert cluster.kill("leader:none")
