"""Brokers that decide about a partition by themselves: who leads after what, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable

from octopi.agreement.heard import HeardBrokers
from octopi.coordination.agreed_partition import decode_partition
from octopi.coordination.election import ElectionGoal
from octopi.identifiers import BrokerId, Epoch, Incarnation
from octopi.limits import FENCE_S, SUSPECT_S
from octopi.wire import messages as m
from tests.ring.partition_world import NUMBER, PartitionWorld

REPLACED_S = SUSPECT_S / 0.87 + 0.5
"""Within this time a leader that nobody hears is replaced: the slowest clock suspects it last."""


def running(seed: int = 1, **options: int) -> PartitionWorld:
    """Brokers that have a leader, and a message."""
    world = PartitionWorld(seed, **options)
    world.settle(0.5)
    assert world.produced()
    return world


def stop(world: PartitionWorld, *brokers: int) -> None:
    for one in brokers:
        world.hosts[BrokerId(one)].stop()


def start(world: PartitionWorld, *brokers: int) -> None:
    for one in brokers:
        world.hosts[BrokerId(one)].start()


def in_sync(world: PartitionWorld) -> list[int]:
    return list(world.decided.in_sync)


def test_the_first_replica_leads_as_soon_as_its_broker_is_registered() -> None:
    world = PartitionWorld(1)
    assert world.leader() is None
    world.settle(0.2)
    assert world.decided.leader == 1
    assert world.decided.epoch == 1
    assert world.produced()
    assert {one.broker for one in world.agreed.incarnations} == {1, 2, 3}


def test_a_leader_that_dies_is_replaced_and_nothing_is_lost() -> None:
    world = running()
    stop(world, 1)
    world.settle(REPLACED_S)
    assert world.decided.leader != 1
    assert world.produced()
    start(world, 1)
    world.settle(2.0)
    assert in_sync(world) == [1, 2, 3]
    assert world.produced()


def test_two_of_five_brokers_die_at_once_and_the_last_replica_goes_on() -> None:
    world = running()
    stop(world, 1, 2)
    world.settle(2 * REPLACED_S)
    assert world.decided.leader == 3
    assert world.produced()


def test_without_a_majority_nothing_is_decided_until_one_is_back() -> None:
    world = running()
    stop(world, 1, 2, 4)
    world.settle(5.0)
    assert world.decided.epoch == 1
    assert world.leader() is None
    start(world, 4)
    world.settle(2 * REPLACED_S)
    assert world.decided.leader == 3
    assert world.produced()


def test_a_leader_that_was_restarted_leads_again_in_an_epoch_of_its_own() -> None:
    world = running()
    stop(world, 1)
    start(world, 1)
    world.settle(1.0)
    record = world.decided
    assert record.epoch > 1
    assert record.leader != 1 or record.leader_incarnation == 2
    world.settle(2.0)
    assert in_sync(world) == [1, 2, 3]
    assert world.produced()


def test_all_brokers_are_restarted_at_once_and_go_on() -> None:
    world = running()
    stop(world, *world.hosts)
    start(world, *world.hosts)
    world.settle(3.0)
    assert world.produced()


def test_a_leader_that_is_cut_off_loses_its_right_before_another_one_is_chosen() -> None:
    world = running()
    first = world.hosts[BrokerId(1)]
    assert first.has_right()
    world.cut = frozenset({1})
    lost_at = None
    began = world.now
    while world.decided.leader == 1:
        world.settle(0.05)
        if lost_at is None and not first.has_right():
            lost_at = world.now
    assert lost_at is not None
    assert lost_at - began <= FENCE_S / 0.87 + 0.1
    assert lost_at < world.now
    assert first.leads is not None  # it does not know yet
    world.cut = frozenset()
    world.settle(2.0)
    assert first.leads is None
    assert world.produced()


def test_a_leader_alone_in_sync_that_is_cut_off_is_replaced_by_nobody() -> None:
    world = running()
    stop(world, 2, 3)
    world.settle(3.0)
    assert in_sync(world) == [1]
    assert world.produced()
    start(world, 2, 3)
    world.cut = frozenset({1})
    world.settle(5.0)
    assert world.decided.leader == 1
    world.cut = frozenset()
    world.settle(5.0)
    assert in_sync(world) == [1, 2, 3]
    assert world.produced()


def test_a_follower_that_is_cut_off_deposes_nobody() -> None:
    world = running()
    world.cut = frozenset({2})
    world.settle(4.0)
    world.cut = frozenset()
    world.settle(4.0)
    assert world.agreed.announced == 1
    assert in_sync(world) == [1, 2, 3]


def refused(world: PartitionWorld, broker: int) -> None:
    """A broker alone does not hear the leader, holds an election, and accepts it alone."""
    host = world.hosts[BrokerId(broker)]
    assert host.partition is not None
    host.heard = HeardBrokers(host.now - 10)
    world.do(host, host.partition.hold(ElectionGoal(), host.now))
    for _ in range(4):  # its first ballot may be too low
        world.flow()
        world.pass_time(0.02)
    accepted = host.acceptor.state.value
    assert accepted is not None
    assert decode_partition(accepted.content).announced == 2, "its own acceptor has accepted it"
    assert world.agreed.announced == 1, "the others have not"


def test_a_broker_whose_election_was_refused_is_registered_and_in_sync_after_its_restart() -> None:
    world = running(acceptors=3)
    stop(world, 2)
    world.settle(1.0)
    start(world, 2)
    world.pass_time(0.05)
    world.flow()
    assert in_sync(world) == [1, 3], "it does not follow yet, so the leader has nothing to propose"
    refused(world, 2)
    stop(world, 2)
    start(world, 2)
    world.settle(8.0)
    assert in_sync(world) == [1, 2, 3]
    assert world.produced()


def test_so_it_is_while_it_is_needed_for_a_majority() -> None:
    world = running(acceptors=3)
    stop(world, 3)
    world.settle(3.0)
    refused(world, 2)
    stop(world, 2)
    world.settle(3.0)
    start(world, 2)
    world.settle(8.0)
    assert in_sync(world) == [1, 2]
    assert world.produced()


def test_who_hears_late_that_a_leader_was_replaced_replaces_nobody() -> None:
    world = running()
    stop(world, 1)
    waiting = world.hosts[BrokerId(3)]
    world.settle(REPLACED_S)
    epoch = world.decided.epoch
    assert waiting.partition is not None
    stop(world, 3)
    start(world, 3)
    world.do(waiting, waiting.partition.hold(ElectionGoal(), waiting.now))  # by the first value
    world.settle(1.0)
    assert world.agreed.announced == world.decided.epoch == epoch


def test_a_leader_hands_over_to_the_one_that_is_wanted() -> None:
    world = running()
    first = world.hosts[BrokerId(1)]
    assert first.partition is not None
    world.do(first, first.partition.hold(ElectionGoal(leader=BrokerId(3)), first.now))
    world.settle(0.3)
    assert world.decided.leader == 3
    assert in_sync(world) == [1, 2, 3]
    assert world.produced()


def test_a_leader_that_resigns_is_replaced_once() -> None:
    world = running()
    first = world.hosts[BrokerId(1)]
    assert first.partition is not None
    resigned = m.Resign(NUMBER, Epoch(1), BrokerId(1), Incarnation(1), "the disk is full")
    for _ in range(2):
        world.do(first, first.partition.resign(resigned, first.now))
    world.settle(0.5)
    assert world.decided.leader != 1
    assert world.decided.epoch == 2
    world.do(first, first.partition.resign(resigned, first.now))  # late
    world.settle(0.5)
    assert world.decided.epoch == 2


def moved(world: PartitionWorld, group: Iterable[int]) -> None:
    leader = world.leader()
    assert leader is not None
    assert leader.partition is not None
    acceptors = [world.hosts[BrokerId(one)].identity for one in group]
    world.do(leader, leader.partition.move(acceptors, leader.now))
    world.settle(0.5)


def test_other_brokers_become_the_acceptors_and_the_former_ones_are_needed_no_more() -> None:
    world = running(brokers=6, acceptors=3)
    moved(world, [4, 5, 6])
    assert {one.broker for one in world.chosen[max(world.chosen)].members} == {4, 5, 6}
    leader = world.leader()
    assert leader is not None
    assert leader.has_right()
    stop(world, 1)
    world.settle(REPLACED_S)
    assert world.decided.leader in {2, 3}
    assert world.produced()


def test_a_leader_without_the_majority_of_its_acceptors_has_no_right() -> None:
    world = running(brokers=6, acceptors=3)
    moved(world, [4, 5, 6])
    world.cut = frozenset({4, 5})
    world.settle(2.0)
    first = world.hosts[BrokerId(1)]
    assert first.leads is not None
    assert not first.has_right()


def test_a_leader_counts_the_acceptors_that_it_proposed_before_it_hears_of_them() -> None:
    world = running(brokers=6, acceptors=3)
    first = world.hosts[BrokerId(1)]
    assert first.partition is not None
    assert first.has_right()
    world.cut = frozenset({4, 5, 6})
    world.settle(1.5)
    assert first.has_right()
    acceptors = [world.hosts[BrokerId(one)].identity for one in (4, 5, 6)]
    world.do(first, first.partition.move(acceptors, first.now))
    world.flow()
    assert not first.has_right()
    world.cut = frozenset()
    world.settle(4.0)
    leader = world.leader()
    assert leader is not None
    assert leader.has_right()


def test_a_broker_with_an_older_copy_of_its_directory_takes_no_part() -> None:
    world = running()
    node = world.nodes[BrokerId(2)]
    stop(world, 2)
    node.copy()
    start(world, 2)
    world.settle(1.0)
    stop(world, 2)
    node.restore()
    node.incarnation += 5  # even if it counted on
    start(world, 2)
    world.settle(1.0)
    assert world.hosts[BrokerId(2)].partition is None
    assert world.produced()


def test_the_least_number_in_sync_is_agreed_on() -> None:
    world = running()
    first = world.hosts[BrokerId(1)]
    assert first.partition is not None
    for _ in range(2):
        world.do(first, first.partition.require(2, first.now))
    world.settle(0.3)
    assert world.agreed.min_insync == 2
    changes = len(world.chosen)
    world.do(first, first.partition.require(2, first.now))
    world.settle(0.3)
    assert len(world.chosen) == changes


def test_whoever_reads_learns_what_was_decided_without_it() -> None:
    world = running()
    world.cut = frozenset({5})
    stop(world, 1)
    world.settle(REPLACED_S)
    last = world.hosts[BrokerId(5)]
    assert last.partition is not None
    assert last.partition.agreed.record.epoch == 1
    world.cut = frozenset()
    world.do(last, last.partition.read(last.now))
    world.settle(1.0)
    assert last.partition.agreed.record == world.decided


def test_an_inquiry_says_what_replicas_have_and_decides_nothing_unless_that_is_ordered() -> None:
    world = running()
    stop(world, 2, 3)
    world.settle(3.0)
    assert in_sync(world) == [1]
    stop(world, 1)
    start(world, 2, 3)
    world.settle(3.0)
    assert world.leader() is None
    epoch = world.decided.epoch
    asking = world.hosts[BrokerId(5)]  # it decides, and has no replica
    assert asking.partition is not None
    world.do(asking, asking.partition.inquire(asking.now))
    world.settle(0.5)
    inquiry = asking.partition.inquiry
    assert inquiry is not None
    assert inquiry.acceptances is not None
    assert set(inquiry.acceptances.accepts) == {2, 3}
    world.settle(1.0)
    assert world.decided.epoch == epoch, "nobody may lead"
    assert asking.partition.inquiry is inquiry
    world.do(asking, asking.partition.accept_loss(asking.now, asking.seen))
    assert asking.partition.accept_loss(asking.now, asking.seen) == [], "it is proposed"
    world.settle(1.0)
    assert world.decided.leader in {2, 3}
    assert world.decided.recovered_epoch == world.decided.epoch > epoch
    assert asking.partition.inquiry is None
    assert asking.partition.accept_loss(asking.now, asking.seen) == []


def test_an_inquiry_ends_by_itself() -> None:
    world = running()
    stop(world, 1, 2, 3)
    asking = world.hosts[BrokerId(4)]
    assert asking.partition is not None
    world.settle(3.0)
    stop(world, 5)
    world.do(asking, asking.partition.inquire(asking.now))
    assert asking.partition.inquiry is not None
    world.settle(10.0)
    assert asking.partition.inquiry is None


def test_an_election_passes_over_brokers_that_are_to_lead_nothing_while_there_are_others() -> None:
    for unwilling, leader in (((), 2), ((2,), 3), ((2, 3), 2)):
        world = running()
        for host in world.hosts.values():
            host.unwilling = frozenset(BrokerId(one) for one in unwilling)
        stop(world, 1)
        world.settle(REPLACED_S)
        assert world.decided.leader == leader
        assert world.produced()
