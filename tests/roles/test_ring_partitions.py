"""Brokers without a register decide about partitions by themselves: each has a leader, also after
brokers were killed, and nothing else than a majority is needed."""

from __future__ import annotations

from collections.abc import Iterable

from octopi.ring.groups import replica_group
from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts
from tests.roles.test_ring_brokers import of_ring

FIVE = ("a", "b", "c", "d", "e")
PARTITIONS = 8


def founded(cluster: Cluster, names: Iterable[str] = FIVE) -> RingOfHosts:
    ring = RingOfHosts(cluster, partitions=PARTITIONS)
    for name in names:
        ring.start(name, names)
    return ring


def led(ring: RingOfHosts, *, in_sync: int) -> dict[int, tuple[int, int]]:
    """Partition -> the broker that leads it, with so many replicas in sync, and its epoch."""
    found: dict[int, tuple[int, int]] = {}
    for name, member in ring.members().items():
        for replica in ring.nodes[name].replicas.replicas:
            leader = replica.machine.leader
            if leader is not None and len(leader.in_sync) == in_sync:
                assert member.identity.broker is not None
                before = found.get(replica.partition, (0, 0))
                found[replica.partition] = max(
                    before, (member.identity.broker, leader.epoch), key=lambda one: one[1]
                )
    return found


async def all_led(ring: RingOfHosts, *, in_sync: int, within_s: float = 20.0) -> None:
    """Wait until each partition has a leader with so many replicas in sync."""
    await ring.cluster.eventually(
        lambda: len(led(ring, in_sync=in_sync)) == PARTITIONS,
        f"all partitions have leaders with {in_sync} in sync",
        within_s=within_s,
    )


@simulated(brokers=1, oracle=False)
async def test_each_partition_of_a_new_ring_has_a_leader_and_all_replicas_in_sync(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    assert {epoch for _, epoch in led(ring, in_sync=3).values()} == {1}


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_is_cut_off_has_no_right_to_lead_what_it_leads(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await cluster.sleep(1.0)

    def fenced(name: str) -> set[bool]:
        partitions = ring.member(name).partitions
        assert partitions is not None
        return {not may_act for _, may_act in partitions.pulses.led()}

    assert set.union(*(fenced(name) for name in FIVE)) == {False}
    leading = next(name for name in FIVE if fenced(name))
    cluster.isolate(leading, seconds=1.5)
    await cluster.sleep(1.2)
    assert fenced(leading) == {True}
    await all_led(ring, in_sync=3, within_s=60.0)


@simulated(seeds=2, brokers=1, oracle=False)
async def test_partitions_of_a_broker_that_is_killed_are_led_by_others_until_it_is_back(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    victim = cluster.random.choice(FIVE)
    broker = of_ring(ring)[victim][0]
    before = led(ring, in_sync=3)
    cluster.kill(victim)
    await cluster.eventually(
        lambda: all(
            (now := {**led(ring, in_sync=3), **led(ring, in_sync=2)}).get(one, (broker, 0))[0]
            != broker
            and now[one][1] > epoch
            for one, (leader, epoch) in before.items()
            if leader == broker
        ),
        "others lead instead",
        within_s=1.0,
    )
    cluster.restart(victim)
    await all_led(ring, in_sync=3)


@simulated(brokers=1, oracle=False)
async def test_all_brokers_are_killed_at_once_and_lead_again(cluster: Cluster) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    for name in FIVE:
        cluster.kill(name, restart_s=1.0)
    await cluster.sleep(1.0)
    await all_led(ring, in_sync=3, within_s=40.0)


@simulated(brokers=1, oracle=False)
async def test_a_broker_alone_forms_a_cluster_and_leads_everything(cluster: Cluster) -> None:
    ring = founded(cluster, ["a"])
    await all_led(ring, in_sync=1)


@simulated(brokers=1, oracle=False)
async def test_a_broker_that_stops_hands_over_what_it_leads(cluster: Cluster) -> None:
    ring = founded(cluster)
    await all_led(ring, in_sync=3)
    await ring.ideal(*FIVE)
    broker = of_ring(ring)["b"][0]
    before = led(ring, in_sync=3)
    ring.stop("b")
    await ring.ideal(*(one for one in FIVE if one != "b"))
    now = {**led(ring, in_sync=3), **led(ring, in_sync=2)}
    assert len(now) == PARTITIONS
    assert broker in {leader for leader, _ in before.values()}
    assert broker not in {leader for leader, _ in now.values()}


def groups_of_the_ring(ring: RingOfHosts) -> bool:
    """Whether each partition has the replicas and acceptors that the ring gives it."""
    members = ring.members().values()
    nodes = [one.chord.me for one in members if one.chord is not None]
    for member in members:
        for machine in () if member.partitions is None else member.partitions:
            replicas, acceptors = replica_group(machine.partition, 3, nodes)
            wanted = {one.identity for one in acceptors}
            if {one.broker for one in replicas} != set(machine.agreed.record.replicas):
                return False
            if wanted != set(machine.value.acceptors) or machine.value.is_joint:
                return False
    return True


@simulated(brokers=1, oracle=False)
async def test_partitions_move_to_brokers_that_join(cluster: Cluster) -> None:
    ring = founded(cluster, FIVE[:3])
    await all_led(ring, in_sync=3)
    for name in FIVE[3:]:
        ring.start(name, FIVE[:3])
    await ring.ideal(*FIVE)
    assert not groups_of_the_ring(ring)
    await cluster.eventually(
        lambda: groups_of_the_ring(ring), "the groups follow the ring", within_s=180.0
    )
    await all_led(ring, in_sync=3)
