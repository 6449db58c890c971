"""A relay that is stopped hands over first, so a rolling restart holds nobody up for long."""

from __future__ import annotations

import trio

from octopi import Client, connect
from octopi.identifiers import TopicName
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts

TOPIC = TopicName("prices")


async def restarted(cluster: Cluster, relays: RelaysOfHosts, name: str) -> None:
    """A relay is stopped, and started again when it has ended; wait until it takes part."""
    relays.stop(name)
    await cluster.eventually(lambda: name not in relays.running(), "it has ended")
    await cluster.sleep(1.5)  # who is back at once says that it is empty, which is noticed sooner
    cluster.restart(name)
    await cluster.eventually(lambda: name in relays.running(), "it runs")

    def takes_part() -> bool:
        node = relays.running()[name]
        return not node.why_not_ready

    await cluster.eventually(takes_part, "it takes part")
    await cluster.sleep(0.5)


@simulated(seeds=2, brokers=1, oracle=False)
async def test_relays_that_are_restarted_one_after_the_other_hold_producers_up_only_briefly(
    cluster: Cluster,
) -> None:
    relays = RelaysOfHosts(cluster, partitions=4)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    clock = environment.clock
    pauses: list[float] = []
    sent = 0

    async def produce(client: Client, done: trio.Event) -> None:
        nonlocal sent
        async with client.producer() as producer:
            while not done.is_set():
                began = clock.now()
                await producer.send(TOPIC, b"%d" % sent)
                pauses.append(clock.now() - began)
                sent += 1
                await cluster.sleep(0.02)

    async with connect(relays.addresses, environment=environment) as client:
        async with trio.open_nursery() as nursery:
            done = trio.Event()
            nursery.start_soon(produce, client, done)
            for name in relays.names:
                await cluster.sleep(0.5)
                await restarted(cluster, relays, name)
            done.set()
        async with client.consumer(TOPIC, start="earliest") as consumer:
            found = [(await consumer.__anext__()).value for _ in range(sent)]
        assert found == [b"%d" % number for number in range(sent)], "none lost, none twice"
    assert max(pauses) < 0.4, "less than the silence after which a crash is noticed"
