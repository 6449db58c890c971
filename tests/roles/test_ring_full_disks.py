"""A broker without a register whose disk is full leads nothing that another one can lead, and
everybody sees why its replicas take no records."""

from __future__ import annotations

from octopi.admin.cluster_snapshot import look, problems
from octopi.identifiers import PartitionId
from octopi.simulation.disk.view import DiskView
from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts
from tests.kit.ring_clients import client_of
from tests.roles.test_ring_operating import FOUNDERS, leaders
from tests.roles.test_ring_partitions import PARTITIONS, all_led, founded, led


def fill_disk(ring: RingOfHosts, name: str, capacity_bytes: int | None = 0) -> None:
    """Leave no space on the disk of a broker; None: there is space again."""
    view = ring.nodes[name].environment.disk
    assert isinstance(view, DiskView)
    view.disk.capacity_bytes = capacity_bytes


def known(ring: RingOfHosts, partition: PartitionId) -> set[tuple[int, int]]:
    """Who leads a partition, and in which epoch, as the members know."""
    found: set[tuple[int, int]] = set()
    for member in ring.members().values():
        assert member.partitions is not None
        machine = member.partitions.partition(partition)
        assert machine is not None
        found.add((machine.agreed.record.leader, machine.agreed.record.epoch))
    return found


@simulated(brokers=1, oracle=False)
async def test_a_broker_with_a_full_disk_leads_nothing_and_everybody_sees_it(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, ["c"]) as client, client.producer() as producer:
        await client.create_topic("orders", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            await producer.send("orders", b"before", partition=number)
        fill_disk(ring, "a")
        for number in range(PARTITIONS):
            await producer.send("orders", bytes(100_000), partition=number)
        await cluster.eventually(
            lambda: 1 not in leaders(ring) and len(leaders(ring)) == 2, "others lead"
        )
        # Elections pass it over as well, and no lead comes back by sharing.
        cluster.kill("b", restart_s=1.0)
        await cluster.sleep(3.0)
        assert {broker for broker, _ in led(ring, in_sync=2).values()} <= {2, 3}
        await cluster.sleep(12.0)
        assert 1 not in leaders(ring)
        seen = await look(client)
        [full] = [one for one in seen.cluster.brokers if one.disk_trouble]
        assert full.broker == 1
        assert full.disk_free_bytes is not None
        assert full.disk_total_bytes is not None
        assert {one.broker for place in seen.cluster.partitions for one in place.troubles} == {1}
        assert any("broker 1, partitions" in one for one in problems(seen))
        assert ring.nodes["a"].replicas.status.disk.trouble

        fill_disk(ring, "a", None)
        await all_led(ring, in_sync=3, within_s=60.0)
        await cluster.eventually(lambda: 1 in leaders(ring), "it gets its share", within_s=60.0)
        assert not any(one.disk_trouble for one in (await look(client)).cluster.brokers)


@simulated(brokers=1, oracle=False)
async def test_a_leader_on_a_full_disk_leads_on_while_nobody_else_can_and_then_resigns(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FOUNDERS)
    async with client_of(ring, FOUNDERS) as client, client.producer() as producer:
        await client.create_topic("orders")
        [place] = (await client.describe_topic("orders")).partitions
        assert place.leader is not None
        for name in FOUNDERS:
            fill_disk(ring, name)
        await producer.submit("orders", bytes(100_000))
        await cluster.sleep(5.0)
        assert known(ring, place.partition) == {(place.leader, place.epoch)}
        full = FOUNDERS[place.leader - 1]
        for name in FOUNDERS:
            fill_disk(ring, name, 0 if name == full else None)
        await cluster.eventually(
            lambda: place.leader not in {one for one, _ in known(ring, place.partition)},
            "another one leads",
        )
        fill_disk(ring, full, None)
        await producer.flush()
