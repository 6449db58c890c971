"""The brokers of a ring share leads evenly, and leave them where they are then."""

from __future__ import annotations

from collections import Counter

from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts
from tests.roles.test_ring_brokers import of_ring
from tests.roles.test_ring_operating import FOUNDERS
from tests.roles.test_ring_partitions import PARTITIONS, all_led, founded, led


def leads(ring: RingOfHosts) -> Counter[int]:
    """How many partitions each broker leads, with all replicas in sync."""
    return Counter(broker for broker, _ in led(ring, in_sync=3).values())


def is_even(ring: RingOfHosts) -> bool:
    """Whether all brokers lead, and none of them two more than another one."""
    found = leads(ring)
    numbers = [found[broker] for broker, _ in of_ring(ring).values()]
    return sum(numbers) == PARTITIONS and max(numbers) - min(numbers) < 2


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_was_restarted_gets_its_share_back_and_then_nothing_moves(
    cluster: Cluster,
) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    await cluster.eventually(lambda: is_even(ring), "a new ring shares leads", within_s=30.0)
    victim = cluster.random.choice(FOUNDERS)
    cluster.kill(victim, restart_s=3.0)
    await cluster.sleep(2.0)
    assert len(ring.members()) == 2
    await all_led(ring, in_sync=3)
    await cluster.eventually(lambda: is_even(ring), "it leads its share again", within_s=40.0)
    await cluster.sleep(10.0)
    before = led(ring, in_sync=3)
    await cluster.sleep(20.0)
    assert led(ring, in_sync=3) == before, "leads move for no reason"


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_joins_gets_leads_when_it_is_in_sync(cluster: Cluster) -> None:
    ring = founded(cluster, FOUNDERS)
    await all_led(ring, in_sync=3)
    ring.start("d", FOUNDERS)
    await ring.ideal(*FOUNDERS, "d")
    await cluster.eventually(
        lambda: len(ring.members()) == 4 and is_even(ring),
        "the new broker leads its share",
        within_s=300.0,
    )
