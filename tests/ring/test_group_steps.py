"""The replica group of a partition follows the ring, step by step, and never counts on data that is
not there."""

from __future__ import annotations

from collections.abc import Collection
from random import Random

import attrs
import pytest

from octopi.agreement.values import first_value
from octopi.coordination.agreed_partition import AgreedPartition, encode_partition
from octopi.identifiers import BrokerId, DirectoryId, Epoch, Incarnation, PartitionId
from octopi.model import PartitionRecord
from octopi.ring.group_steps import (
    GroupStep,
    RingBrokers,
    TakeAcceptors,
    TakeReplicas,
    next_step,
)
from octopi.ring.groups import replica_group
from octopi.wire.agreement import AgreedValue
from octopi.wire.ring import RingNode
from tests.ring.nodes import node

REPLICAS = 3


def ring(*brokers: int) -> list[RingNode]:
    """Brokers whose points are spread by their ids."""
    return [node(one, point=one * 0x1234567890123 % (1 << 52)) for one in brokers]


@attrs.define
class Partition:
    """The state of a partition, and what takes place when a step is taken."""

    value: AgreedValue
    agreed: AgreedPartition

    def step(
        self,
        nodes: list[RingNode],
        away: Collection[int] = (),
        draining: Collection[int] = (),
        leaving: Collection[int] = (),
    ) -> GroupStep | None:
        live = {one.broker for one in nodes} - set(away)
        drained = {BrokerId(one) for one in draining}
        staying = tuple(one for one in nodes if one.broker not in leaving)
        known = RingBrokers(staying, staying)
        return next_step(self.value, self.agreed, REPLICAS, known, live, drained)

    def take(self, step: GroupStep) -> None:
        """The step is taken: a new replica has to catch up before it is in sync."""
        record = self.agreed.record
        match step:
            case TakeAcceptors(acceptors) if self.value.is_joint:
                assert acceptors == self.value.acceptors
                self.value = self.value.completed()
            case TakeAcceptors(acceptors):
                self.value = self.value.moved_to(acceptors)
            case TakeReplicas(replicas):
                in_sync = [one for one in record.in_sync if one in replicas]
                assert in_sync, "what was committed is on none of them"
                leader = record.leader if record.leader in replicas else in_sync[0]
                changed = attrs.evolve(
                    record,
                    epoch=Epoch(record.epoch + 1),
                    leader=leader,
                    replicas=list(replicas),
                    in_sync=in_sync,
                )
                self.agreed = attrs.evolve(self.agreed, record=changed)

    def catch_up(self) -> None:
        """All replicas are in sync."""
        record = self.agreed.record
        caught_up = attrs.evolve(record, in_sync=sorted(record.replicas))
        self.agreed = attrs.evolve(self.agreed, record=caught_up)

    @property
    def replicas(self) -> set[int]:
        return set(self.agreed.record.replicas)


def at_rest(nodes: list[RingNode], partition: int = 0) -> Partition:
    """A partition whose group is the one of the ring *nodes*."""
    replicas, acceptors = replica_group(PartitionId(partition), REPLICAS, nodes)
    ids = [one.broker for one in replicas]
    record = PartitionRecord(
        PartitionId(partition), Epoch(1), 0, ids[0], Incarnation(1), ids, sorted(ids)
    )
    agreed = AgreedPartition(record, Epoch(1))
    value = first_value([one.identity for one in acceptors], encode_partition(agreed))
    return Partition(value, agreed)


def target(nodes: list[RingNode]) -> tuple[set[int], set[int]]:
    replicas, acceptors = replica_group(PartitionId(0), REPLICAS, nodes)
    return {one.broker for one in replicas}, {one.broker for one in acceptors}


def test_a_group_that_is_the_ring_s_takes_no_step() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6)
    assert at_rest(nodes).step(nodes) is None


@pytest.mark.parametrize("seed", range(40))
def test_whatever_the_ring_becomes_the_group_follows_and_stops(seed: int) -> None:
    random = Random(seed)
    before = ring(*random.sample(range(1, 12), random.randint(3, 8)))
    after = ring(*random.sample(range(1, 12), random.randint(3, 8)))
    partition = at_rest(before)
    # Whoever left has gone after its data has: the others are there until the last step.
    everyone = {one.broker: one for one in [*before, *after]}
    leaving = everyone.keys() - {one.broker for one in after}
    taken = 0
    while (step := partition.step(list(everyone.values()), leaving=leaving)) is not None or (
        not partition.replicas <= set(partition.agreed.record.in_sync)
    ):
        if step is None:
            partition.catch_up()
            continue
        partition.take(step)
        taken += 1
        assert taken < 20
        assert len(partition.agreed.record.in_sync) >= REPLICAS
    assert (partition.replicas, {one.broker for one in partition.value.members}) == target(after)


def test_a_broker_that_joins_is_a_replica_before_another_one_goes() -> None:
    before, after = ring(3, 4, 5, 6, 7), ring(1, 2, 3, 4, 5, 6, 7)
    partition = at_rest(before)
    first = partition.replicas
    sizes = []
    while (step := partition.step(after)) is not None:
        partition.take(step)
        sizes.append(len(partition.replicas))
        if isinstance(step, TakeReplicas):
            break
    assert sizes[-1] == REPLICAS + 1
    assert first < partition.replicas
    following = partition.step(after)
    assert following is None or isinstance(following, TakeReplicas)
    assert not isinstance(following, TakeReplicas) or first < set(following.replicas)


def test_nobody_goes_before_the_others_are_in_sync() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6)
    partition = at_rest(nodes)
    record = partition.agreed.record
    extra = next(one for one in range(1, 7) if one not in record.replicas)
    partition.agreed = attrs.evolve(
        partition.agreed,
        record=attrs.evolve(
            record,
            replicas=[*record.replicas, BrokerId(extra)],
            in_sync=sorted([record.replicas[0], record.replicas[1], BrokerId(extra)]),
        ),
    )
    assert partition.step(nodes) is None
    partition.catch_up()
    assert partition.step(nodes) == TakeReplicas(tuple(record.replicas))


def test_the_leader_goes_last() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6, 7)
    partition = at_rest(nodes)
    record = partition.agreed.record
    outside = [one for one in range(1, 8) if one not in record.replicas]
    led = attrs.evolve(
        record,
        leader=BrokerId(outside[0]),
        replicas=[*record.replicas, *map(BrokerId, outside[:2])],
        in_sync=sorted([*record.replicas, *map(BrokerId, outside[:2])]),
    )
    partition.agreed = attrs.evolve(partition.agreed, record=led)
    for expected in (outside[1], outside[0]):
        step = partition.step(nodes)
        assert isinstance(step, TakeReplicas)
        assert partition.replicas - set(step.replicas) == {expected}
        partition.take(step)
    assert partition.step(nodes) is None


def test_while_a_broker_of_the_group_is_away_nothing_moves() -> None:
    before, after = ring(3, 4, 5, 6, 7), ring(1, 2, 3, 4, 5, 6, 7)
    partition = at_rest(before)
    assert partition.step(after) is not None
    for away in {one.broker for one in partition.value.members} | target(after)[1]:
        assert partition.step(after, away=[away]) is None


def test_a_broker_that_lost_its_disk_is_replaced_as_an_acceptor_by_its_new_directory() -> None:
    nodes = ring(1, 2, 3, 4, 5)
    partition = at_rest(nodes)
    lost = nodes[0]
    nodes[0] = attrs.evolve(lost, directory=DirectoryId("ff"))
    step = partition.step(nodes)
    assert isinstance(step, TakeAcceptors)
    assert nodes[0].identity in step.acceptors
    assert lost.identity not in step.acceptors


def test_a_move_that_was_begun_is_completed_first() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6)
    partition = at_rest(nodes)
    others = [one.identity for one in nodes if one.broker != nodes[0].broker][:3]
    partition.value = partition.value.moved_to(others)
    assert partition.step(nodes) == TakeAcceptors(tuple(sorted(others)))


def test_one_that_is_away_for_a_while_decides_no_more_and_keeps_its_replica() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6)
    partition = at_rest(nodes)
    away = partition.agreed.record.replicas[1]
    others = tuple(one for one in nodes if one.broker != away)
    live = {one.broker for one in others}
    known = RingBrokers(others, tuple(nodes))
    step = next_step(partition.value, partition.agreed, REPLICAS, known, live)
    assert isinstance(step, TakeAcceptors)
    assert away not in {one.broker for one in step.acceptors}
    partition.take(step)
    partition.value = partition.value.completed()
    assert next_step(partition.value, partition.agreed, REPLICAS, known, live) is None
    gone = RingBrokers(others, others)
    step = next_step(partition.value, partition.agreed, REPLICAS, gone, live)
    assert isinstance(step, TakeReplicas)
    assert set(step.replicas) > partition.replicas


def test_who_leaves_is_left_out_whether_it_is_there_or_not() -> None:
    nodes = ring(1, 2, 3, 4, 5, 6, 7)
    for away in ((), (1,)):
        partition = at_rest(nodes)
        leaving = partition.agreed.record.replicas[0]
        while (
            step := partition.step(nodes, away=[leaving] if away else [], leaving=[leaving])
        ) is not None:
            partition.take(step)
            partition.catch_up()
        assert leaving not in partition.replicas | {one.broker for one in partition.value.members}
        assert len(partition.agreed.record.in_sync) == REPLICAS


def test_who_is_drained_keeps_its_replica_where_too_few_others_are_there() -> None:
    nodes = ring(1, 2, 3)
    partition = at_rest(nodes)
    assert partition.step(nodes, draining=[1]) is None


def test_nobody_goes_whom_a_topic_needs_in_sync() -> None:
    nodes = ring(1, 2, 3)
    partition = at_rest(nodes)
    while isinstance(step := partition.step(nodes, leaving=[3]), TakeAcceptors):
        partition.take(step)
    assert step == TakeReplicas(tuple(one for one in partition.agreed.record.replicas if one != 3))
    partition.agreed = attrs.evolve(partition.agreed, min_insync=3)
    assert partition.step(nodes, leaving=[3]) is None
