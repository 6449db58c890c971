"""Brokers leave the cluster for good, and take nothing with them."""

from __future__ import annotations

import attrs
import pytest

from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import (
    AgreedPartition,
    RegisteredIncarnation,
    encode_partition,
)
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.first_partition import instance_of
from octopi.ring.leaving import BrokerParts, RemovalCheck, parts_of, what_it_waits_for
from octopi.ring.partition import RingPartition
from tests.replication.cluster import ViolationError
from tests.ring.leaving_walks import CLUSTER, LEAVERS, LeavingWalk, leaving_walk
from tests.ring.nodes import node
from tests.ring.partition_world import PartitionWorld


@pytest.mark.parametrize("seed", range(4))
def test_brokers_that_leave_amid_faults_are_removed_and_nothing_is_lost(seed: int) -> None:
    walk = leaving_walk(seed, 300)
    assert len(walk.gone) == LEAVERS
    world = walk.world
    newest = world.chosen[max(world.chosen)]
    counted = {one.broker for one in newest.members}.union(world.decided.replicas)
    assert not counted & walk.gone
    assert world.produced()


def test_a_broker_that_is_removed_before_others_have_what_it_has_is_noticed_by_a_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(BrokerParts, "is_free", property(lambda parts: True))
    with pytest.raises(ViolationError, match="nobody is removed who is in sync"):
        leaving_walk(0, 300)


def leave_calmly(walk: LeavingWalk, broker: int, unheard: int) -> None:
    """*broker* leaves while nothing goes wrong; *unheard* hears nothing of it."""
    walk.ordered = {BrokerId(broker)}
    hosts = [one for one in walk.world.hosts.values() if one.broker != unheard]
    for _ in range(30):
        for host in hosts:
            host.unwilling = frozenset(walk.ordered | walk.gone)
            walk.take_step(host)
            walk.remove_by(host)
        if broker in walk.gone:
            return
        walk.world.settle(0.5)
    raise AssertionError("it never leaves")


def a_broker_that_was_cut_off_wants_to_remove_one_that_has_come_into_the_group() -> LeavingWalk:
    walk = LeavingWalk(PartitionWorld(1, brokers=9, keeping=9))
    walk.world.settle(1.0)
    walk.world.cut = frozenset({9})
    for broker in (1, 2, 3):
        leave_calmly(walk, broker, unheard=9)
    assert walk.world.decided.in_sync == [4, 5, 6]
    stale = walk.world.hosts[BrokerId(9)]
    walk.ordered = {BrokerId(6)}
    stale.unwilling = frozenset(walk.ordered)
    for _ in range(5):
        walk.remove_by(stale)
        walk.world.settle(0.5)
    return walk


def test_a_broker_that_knows_too_little_removes_nobody() -> None:
    walk = a_broker_that_was_cut_off_wants_to_remove_one_that_has_come_into_the_group()
    assert walk.gone == {1, 2, 3}
    walk.world.cut = frozenset()
    leave_calmly(walk, 6, unheard=0)
    assert walk.world.decided.in_sync == [4, 5, 7]


def test_belief_in_old_knowledge_about_a_broker_that_leaves_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        RemovalCheck, "pending", lambda check, parts, partitions: [] if parts.is_free else None
    )
    with pytest.raises(ViolationError, match="nobody is removed who is in sync"):
        a_broker_that_was_cut_off_wants_to_remove_one_that_has_come_into_the_group()


def partition(
    *replicas: int, in_sync: tuple[int, ...] = (), acceptors: tuple[int, ...] = (), least: int = 1
) -> RingPartition:
    """A partition with these replicas, as broker 9 knows it."""
    ids = [BrokerId(one) for one in replicas]
    synced = [BrokerId(one) for one in in_sync or replicas]
    record = PartitionRecord(
        PartitionId(0), Epoch(1), 0, synced[0], Incarnation(1), ids, sorted(synced)
    )
    content = encode_partition(AgreedPartition(record, Epoch(1), min_insync=least))
    group = [node(one).identity for one in acceptors or replicas]
    me = RegisteredIncarnation(BrokerId(9), Incarnation(1), "")
    value = first_value(group, content)
    return RingPartition(PartitionId(0), instance_of(PartitionId(0)), me, value, lambda: 0.5)


def test_what_counts_on_a_broker_are_leads_replicas_and_agreements() -> None:
    partitions = [partition(1, 2, 3), partition(2, 3, acceptors=(1, 2, 3))]
    cluster = first_value([node(2).identity, node(4).identity, node(5).identity], b"")
    expected = {1: (1, 1, 2), 2: (1, 2, 3), 3: (0, 2, 2), 4: (0, 0, 1), 6: (0, 0, 0)}
    for broker, parts in expected.items():
        found = parts_of(BrokerId(broker), partitions, cluster)
        assert attrs.astuple(found) == parts
        assert found.is_free == (broker == 6)


def test_an_acceptor_counts_until_the_move_to_others_is_complete() -> None:
    moving = partition(1, 2, 3)
    moving.value = moving.value.moved_to([node(one).identity for one in (2, 3, 4)])
    assert parts_of(BrokerId(1), [moving], CLUSTER).decides == 1
    moving.value = moving.value.completed()
    assert parts_of(BrokerId(1), [moving], CLUSTER).decides == 0


def test_a_broker_is_removed_only_after_all_partitions_were_read_anew() -> None:
    world = PartitionWorld(1)
    world.settle(0.5)
    host = world.hosts[BrokerId(4)]
    machine = host.partition
    assert machine is not None
    check, free, busy = RemovalCheck(), BrokerParts(0, 0, 0), BrokerParts(0, 0, 1)
    world.do(host, machine.read(host.now))
    assert check.pending(free, [machine]) == [machine]
    world.settle(0.5)
    assert check.pending(free, [machine]) == [machine], "that read began before"
    world.do(host, machine.read(host.now))
    world.settle(0.5)
    assert check.pending(free, [machine]) == []
    assert check.pending(busy, [machine]) is None
    assert check.pending(free, [machine]) == [machine], "it begins anew"


@pytest.mark.parametrize(
    ("known", "staying", "live", "why"),
    [
        (partition(1, 2, 3), (2, 3), (1, 2, 3), ""),
        (partition(2, 3), (2, 3), (2, 3), ""),
        (partition(1, 2, in_sync=(1,)), (2, 3), (2, 3), "start broker 1"),
        (partition(1, 2, 3, least=3), (2, 3), (1, 2, 3), "needs 3 replicas in sync"),
        (partition(1, 2, 3), (2, 3), (1, 2), "broker 3 is away"),
    ],
)
def test_what_keeps_a_broker_from_leaving_is_said(
    known: RingPartition, staying: tuple[int, ...], live: tuple[int, ...], why: str
) -> None:
    found = what_it_waits_for(
        BrokerId(1), [known], [BrokerId(one) for one in staying], [BrokerId(one) for one in live]
    )
    assert why in found
    assert bool(why) == bool(found)
