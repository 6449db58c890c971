"""Brokers without a register form one cluster and one ring, whatever happens to them."""

from __future__ import annotations

from octopi.identifiers import PartitionId
from octopi.ring.points import partition_key
from octopi.testing import Cluster, simulated
from tests.kit.ring import RingOfHosts

FOUNDERS = ("a", "b", "c")


def founded(cluster: Cluster) -> RingOfHosts:
    """A ring of three founders that have been started."""
    ring = RingOfHosts(cluster)
    for name in FOUNDERS:
        ring.start(name, FOUNDERS)
    return ring


def of_ring(ring: RingOfHosts) -> dict[str, tuple[int, str]]:
    """Id and cluster of each member."""
    return {name: (one.identity.broker or 0, one.cluster) for name, one in ring.members().items()}


@simulated(seeds=2, brokers=1, oracle=False)
async def test_founders_form_one_cluster_in_whatever_order_they_start(cluster: Cluster) -> None:
    ring = RingOfHosts(cluster)
    names = list(FOUNDERS)
    cluster.random.shuffle(names)
    for name in names:
        ring.start(name, FOUNDERS)
        await cluster.sleep(cluster.random.random() * 4)
        assert not ring.members() or name == names[-1], "a cluster of a part of the founders"
    await ring.ideal(*FOUNDERS)
    record = ring.record("a")
    assert [node.broker for node in record.growths[0].members] == [1, 2, 3]
    assert (record.ids, record.home_count) == (3, 8)


@simulated(seeds=3, brokers=1, oracle=False)
async def test_a_founder_that_is_killed_half_way_does_not_keep_the_cluster_from_forming(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    victim = cluster.random.choice(FOUNDERS)
    await cluster.sleep(0.02 + cluster.random.random() * 1.0)
    cluster.kill(victim, restart_s=2.0)
    await ring.ideal(*FOUNDERS)
    assert len({where for _, where in of_ring(ring).values()}) == 1


@simulated(brokers=1, oracle=False)
async def test_a_founder_that_loses_its_disk_after_forming_joins_as_another_broker(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    before = of_ring(ring)
    cluster.wipe("b")
    cluster.restart("b")
    await ring.ideal(*FOUNDERS)
    after = of_ring(ring)
    assert after["b"] == (4, before["b"][1])
    assert {name: after[name] for name in "ac"} == {name: before[name] for name in "ac"}


@simulated(brokers=1, oracle=False)
async def test_one_that_was_killed_is_skipped_and_comes_back_as_the_same_broker(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    before = of_ring(ring)
    cluster.kill("b")
    await ring.ideal("a", "c")
    found = await ring.member("a").locate(partition_key(PartitionId(3)))
    assert found.holder.broker in {1, 3}
    cluster.restart("b")
    await ring.ideal(*FOUNDERS)
    assert of_ring(ring) == before


@simulated(brokers=1, oracle=False)
async def test_all_are_killed_at_once_and_come_together_again(cluster: Cluster) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    before = of_ring(ring)
    for name in FOUNDERS:
        cluster.kill(name, restart_s=1.0)
    await ring.ideal(*FOUNDERS)
    assert of_ring(ring) == before


@simulated(brokers=1, oracle=False)
async def test_two_that_join_at_once_by_different_members_get_different_ids(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    ring.start("d", ["a"])
    ring.start("e", ["c"])
    await ring.ideal(*FOUNDERS, "d", "e")
    ids = of_ring(ring)
    assert {ids["d"][0], ids["e"][0]} == {4, 5}
    assert {where for _, where in ids.values()} == {ids["a"][1]}
    assert ring.record("b").ids == 5


@simulated(brokers=1, oracle=False)
async def test_a_new_broker_gets_no_id_from_a_minority_and_gets_one_after_the_cut(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    ring.start("d", ["a"])
    cluster.split(["a", "d"], ["b", "c"])
    await cluster.sleep(8.0)
    assert "d" not in ring.members()
    assert ring.record("a").ids == 3
    cluster.heal()
    await ring.ideal(*FOUNDERS, "d")


@simulated(brokers=1, oracle=False)
async def test_a_ring_that_was_cut_in_two_is_one_again(cluster: Cluster) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    ring.start("d", ["a"])
    await ring.ideal(*FOUNDERS, "d")
    cluster.split(["a", "c"], ["b", "d"])
    await cluster.sleep(6.0)
    cluster.heal()
    await ring.ideal(*FOUNDERS, "d")


@simulated(brokers=1, oracle=False)
async def test_founders_with_different_lists_form_nothing_and_say_why(cluster: Cluster) -> None:
    ring = RingOfHosts(cluster)
    ring.start("a", ["a", "b"])
    ring.start("b", ["a", "b", "c"])
    await cluster.sleep(4.0)
    assert not ring.members()
    for name in "ab":
        assert "ws://c:9101" in ring.member(name).waits_for
        assert "same list" in ring.member(name).waits_for


@simulated(brokers=1, oracle=False)
async def test_a_wrong_list_of_addresses_makes_no_second_cluster(cluster: Cluster) -> None:
    ring = founded(cluster)
    ring.start("d", ["nobody"])
    await ring.ideal(*FOUNDERS)
    assert "nobody" in ring.member("d").waits_for


@simulated(brokers=1, oracle=False)
async def test_one_founder_alone_forms_a_cluster(cluster: Cluster) -> None:
    ring = RingOfHosts(cluster)
    ring.start("a", ["a"])
    await ring.ideal("a", within_s=5.0)
    found = await ring.member("a").locate(partition_key(PartitionId(0)))
    assert found.holder.broker == 1


@simulated(brokers=1, oracle=False)
async def test_another_broker_takes_the_place_of_an_acceptor_whose_disk_is_lost(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    await ring.ideal(*FOUNDERS)
    cluster.wipe("b")
    cluster.restart("b")
    await ring.ideal(*FOUNDERS)

    def acceptors() -> set[int]:
        chosen = ring.member("a").keeper.chosen
        assert chosen is not None
        return set() if chosen.value.is_joint else {one.broker for one in chosen.value.acceptors}

    await cluster.eventually(lambda: acceptors() == {1, 3, 4}, within_s=90.0)
    cluster.kill("c")  # of the first three acceptors one is left
    ring.start("d", ["a"])
    await ring.ideal("a", "b", "d")
    assert of_ring(ring)["d"][0] == 5


@simulated(seeds=5, brokers=1, oracle=False, timeout_s=900)
async def test_whatever_happens_there_is_one_cluster_and_no_id_is_given_twice(
    cluster: Cluster,
) -> None:
    ring = founded(cluster)
    names, random, wiped = list(FOUNDERS), cluster.random, False
    clusters: set[str] = set()

    def is_one() -> bool:
        clusters.update(one.cluster for one in ring.members().values())
        return len(clusters) <= 1

    cluster.always(is_one, "there is one cluster")
    for _ in range(6):
        await cluster.sleep(random.random() * 2)
        name = random.choice(names)
        match random.randrange(5):
            case 0:
                cluster.kill(name, restart_s=random.random() * 4)
            case 1:
                cluster.lose_power(name, restart_s=random.random() * 4)
            case 2:
                cluster.isolate(name, seconds=random.random() * 5)
            case 3 if not wiped:
                wiped = True
                cluster.wipe(name)
                cluster.restart(name)
            case _ if len(names) < 5:
                names.append("de"[len(names) - 3])
                ring.start(names[-1], random.choice(FOUNDERS))
    cluster.heal()
    await ring.ideal(*names, within_s=120.0)
    ids = [number for number, _ in of_ring(ring).values()]
    assert len(set(ids)) == len(ids)
