"""A simulated cluster boots, serves, loses nodes and gets them back."""

from functools import partial

import pytest
import trio

from octopi.clients.client import Client
from octopi.environment import Environment
from octopi.identifiers import BrokerId, PartitionId
from octopi.simulation.cluster import REGISTER, ClusterOptions, SimulatedCluster
from octopi.simulation.kernel.world import Event
from octopi.tracing import steps
from octopi.wire import messages as m
from tests.simulation.clusters import ask, play, until


async def produce(client: Client) -> None:
    async with client.producer() as producer:
        for number in range(20):
            await producer.send("orders", b"%d" % number)


async def read(client: Client) -> None:
    async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
        assert [one.value async for one in consumer] == [b"%d" % number for number in range(20)]


def test_a_cluster_serves_and_every_replica_has_the_same_bytes() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, produce)
        await ask(cluster, read, "reader")
        assert cluster.leader(0) == "broker-1"
        stored = {cluster.stored_records(node.name, "orders", 0) for node in cluster.brokers}
        assert len(stored) == 1
        assert stored.pop()
        assert cluster.stored_records("broker-1", "payments", 0) is None

    play(scenario)


def test_a_seed_determines_the_run_and_another_seed_gives_another() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, produce)

    digests = [play(scenario, seed=seed).digest for seed in (1, 2, 1)]
    assert digests[0] == digests[2] != digests[1]


def test_a_host_that_runs_is_not_booted_again() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        host = cluster.nodes["broker-2"].host
        assert not cluster.boot("broker-2")
        host.kill()
        cluster.boot_after("broker-2", 0.1)
        cluster.boot_after("broker-2", 0.2)
        await trio.sleep(0.3)
        assert host.life_count == 2
        host.kill()
        assert cluster.boot("broker-2")
        assert not cluster.boot("broker-2")
        await cluster.wait_serving()

    play(scenario)


def test_a_node_that_is_stopping_starts_again_when_it_has_stopped() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        node = cluster.nodes["broker-1"]
        first = node.life
        assert first is not None
        cluster.stop("broker-1")
        cluster.boot_after("broker-1", 0.0)
        await until(lambda: node.host.life_count == 2)
        assert first.ended.is_set()
        assert first.error is None
        await cluster.wait_serving()

    play(scenario)


def test_a_broker_that_lost_its_disk_comes_back_with_another_id() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, produce)
        cluster.nodes["broker-3"].host.kill()
        cluster.wipe("broker-3")
        assert cluster.stored_records("broker-3", "orders", 0) is None
        cluster.boot("broker-3")
        await cluster.wait_serving()
        assert cluster.broker_of("broker-3") == 103
        assert cluster.host_of(103) == cluster.host_of(3) == "broker-3"
        assert cluster.broker_of("client") is None

    play(scenario)


def test_a_broker_that_was_away_hears_of_more_topics_than_a_message_holds() -> None:
    names = [f"topic-{number}" for number in range(1_100)]

    async def create(client: Client) -> None:
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(client.create_topic, name)

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.nodes["broker-3"].host.kill()
        await ask(cluster, create)
        cluster.boot("broker-3")
        held = partial(cluster.stored_records, "broker-3", partition=0)
        await until(lambda: all(held(topic=name) is not None for name in names[::99]))

    play(scenario)


def test_replicas_that_move_away_and_back_at_once_have_their_topics_each_time() -> None:
    """A broker is given the partition again while it still puts its former replica away."""
    moves: list[int] = []

    async def move(client: Client) -> None:
        await client.create_topic("orders")
        [place] = (await client.describe_topic("orders")).partitions
        [leaving] = place.replicas
        joining = BrokerId(3 - leaving)
        for _ in range(6):
            await client.admin.move_replica(place.partition, leaving, joining, timeout_s=20)
            moves.append(joining)
            leaving, joining = joining, leaving

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, move)

    for seed in (1, 2, 3):
        play(scenario, seed=seed, options=ClusterOptions(brokers=2, replicas=1))
    assert len(moves) == 18


def test_a_move_ends_although_a_broker_is_silent_for_a_moment_at_its_last_election() -> None:
    """While a replica in sync counts as away, no replica goes.  The register tries it again, since
    not every client does."""
    late: list[float] = []

    async def move(client: Client) -> None:
        await client.create_topic("orders")
        [place] = (await client.describe_topic("orders")).partitions
        [leaving] = place.replicas
        joining = BrokerId(3 - leaving)

        def order(request: int) -> m.MoveReplica:
            return m.MoveReplica(request, PartitionId(place.partition), BrokerId(leaving), joining)

        await client._router.ask_register_once(order, m.Done, 20)  # as the console does
        [place] = (await client.describe_topic("orders")).partitions
        assert place.replicas == [joining]

    async def scenario(cluster: SimulatedCluster) -> None:
        def observe(event: Event) -> None:
            if event.what != steps.E2Announced.text or late:
                return
            for record in cluster.decided.records.values():
                if len(record.in_sync) == 2:  # so the epoch that ends the move was announced
                    host = cluster.nodes[cluster.host_of(BrokerId(3 - record.leader))].host
                    host.pause()
                    late.append(cluster.world.now)
                    cluster.world.after(1.5, host.resume)

        cluster.world.observers.append(observe)
        await ask(cluster, move)
        assert late

    play(scenario, options=ClusterOptions(brokers=2, replicas=1))


def test_a_drained_broker_is_drained_still_when_it_was_silent_for_a_moment() -> None:
    async def silence(client: Client, cluster: SimulatedCluster) -> None:
        async def first() -> m.BrokerInfo:
            return (await client.admin.describe_cluster()).brokers[0]

        broker = BrokerId((await first()).broker)
        await client.admin.drain_broker(broker)
        host = cluster.nodes[cluster.host_of(broker)].host
        host.pause()
        while (await first()).live:  # noqa: ASYNC110  # virtual time
            await trio.sleep(0.1)
        host.resume()
        while not (await first()).live:  # noqa: ASYNC110  # virtual time
            await trio.sleep(0.1)
        assert (await first()).drained

    async def scenario(cluster: SimulatedCluster) -> None:
        await ask(cluster, lambda client: silence(client, cluster))

    play(scenario, options=ClusterOptions(brokers=2, replicas=2))


def test_only_what_the_register_has_on_its_device_counts_as_decided() -> None:
    async def scenario(cluster: SimulatedCluster) -> None:
        appended: list[Event] = []

        def observe(event: Event) -> None:
            if event.what == steps.R2Appended.text and not appended:
                appended.append(event)
                cluster.register.host.lose_power()

        await ask(cluster, produce)
        known = cluster.decided.state.entries()
        cluster.world.observers.append(observe)
        cluster.nodes["broker-2"].host.kill()
        cluster.boot("broker-2")
        await until(lambda: bool(appended))
        assert cluster.decided.state.entries() == known
        cluster.boot(REGISTER)
        await cluster.wait_serving()

    play(scenario)


def test_a_program_that_never_ends_is_reported_at_the_end() -> None:
    async def hang(environment: Environment) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(1000)

    async def scenario(cluster: SimulatedCluster) -> None:
        cluster.add_client("hanging", hang)
        cluster.boot("hanging")
        await trio.sleep(0.1)
        assert await cluster.end() == ["hanging, life 1"]
        assert not cluster.boot("hanging"), "all was ended"
        await trio.sleep(1000)

    play(scenario)


def test_a_second_host_with_the_same_name_is_refused() -> None:
    async def program(environment: Environment) -> None:
        await trio.lowlevel.checkpoint()

    async def scenario(cluster: SimulatedCluster) -> None:
        await trio.lowlevel.checkpoint()
        with pytest.raises(AssertionError):
            cluster.add_client("broker-1", program)

    play(scenario)
