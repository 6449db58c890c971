"""Relays of a static list serve topics in memory: produced by quorum, read anywhere."""

from __future__ import annotations

from octopi import connect
from octopi.testing import Cluster, simulated
from tests.kit.relays import RelaysOfHosts


@simulated(seeds=2, brokers=1, oracle=False)
async def test_what_is_produced_at_one_relay_is_read_at_all(cluster: Cluster) -> None:
    relays = RelaysOfHosts(cluster)
    relays.start()
    await relays.alike()
    environment = await cluster.environment("client")
    async with connect(relays.addresses[0], environment=environment) as client:
        async with client.producer() as producer:
            receipts = [await producer.send("prices", b"%d" % number) for number in range(20)]
    assert [one.duplicate for one in receipts] == [False] * 20
    for address in relays.addresses:
        async with (
            connect(address, environment=environment) as client,
            client.consumer("prices", start="earliest") as consumer,
        ):
            found = [(await consumer.__anext__()).value for _ in range(20)]
        assert found == [b"%d" % number for number in range(20)]
