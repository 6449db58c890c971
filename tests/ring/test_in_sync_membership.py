"""Who may be elected, and what a leader may conclude when its request for another in-sync set is
not made.  Each scenario also notices the mistake that it is about, planted in the code."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from octopi.coordination import partition_changes
from octopi.coordination.agreed_partition import decode_partition
from octopi.coordination.election import Election, ElectionGoal
from octopi.coordination.partition_changes import InSyncVerdict
from octopi.identifiers import BrokerId
from octopi.model import PartitionRecord
from octopi.replication.effects import PartitionEffect
from octopi.replication.partition_replica import PartitionReplica
from octopi.ring import partition as ring_partition
from octopi.wire import messages as m
from tests.replication.cluster import Envelope, Node, ViolationError
from tests.ring.partition_world import Announced, ForAcceptor, PartitionWorld
from tests.ring.test_partition import REPLACED_S, in_sync, running, start, stop

Plant = Callable[[pytest.MonkeyPatch], None]


def pass_without_following(world: PartitionWorld, seconds: float) -> None:
    """Let time pass in which no follower opens a stream."""
    until = world.now + seconds
    while world.now < until:
        for broker in world.hosts:
            world.pulse(broker)
        world.flow()
        world.pass_time(0.05)


def produce(world: PartitionWorld) -> None:
    """The first broker, which leads, takes one message more."""
    node, topic = world.nodes[1], world.topics[0]
    node.perform(node.produce(topic, (0, len(node.logs[topic].rows))))


# --- the scenarios -------------------------------------------------------------------------


def a_leader_alone_in_sync_wants_a_replica_that_lacks_its_messages() -> None:
    world = running()
    stop(world, 2, 3)
    world.settle(3.0)
    assert in_sync(world) == [1]
    assert world.produced()
    start(world, 2, 3)
    pass_without_following(world, 0.3)
    leader = world.hosts[BrokerId(1)]
    assert leader.partition is not None
    world.do(leader, leader.partition.hold(ElectionGoal(leader=BrokerId(3)), leader.now))
    # The other replicas accept the epoch before the leader's own does.
    own: list[Envelope] = []
    for _ in range(300):
        for broker in world.hosts:
            world.sync(broker)
        own += [one for one in world.network if isinstance(one.message, Announced) and one.to == 1]
        world.network = [one for one in world.network if one not in own]
        if world.network:
            world.deliver(0)
        elif own:
            break
        else:
            world.pass_time(0.01)
    assert own
    world.network += own[:1]
    pass_without_following(world, 0.5)
    assert world.decided.epoch > 1, "the election is decided"
    assert world.decided.leader == 1, "a replica that is not in sync is elected"
    world.settle(3.0)
    assert world.produced()


def a_replica_loses_acknowledged_messages_and_the_others_die() -> None:
    world = running()
    assert world.produced()
    lossy = world.nodes[2]
    stop(world, 1, 2, 3)
    lossy.lose_power(lambda synced, end: synced)
    assert len(lossy.logs[world.topics[0]].rows) < 2, "what was acknowledged was in page caches"
    start(world, 2)
    world.settle(2 * REPLACED_S)
    assert 2 not in in_sync(world), "a replica that lost messages stays in sync"
    assert world.decided.leader == 1
    start(world, 3)
    world.settle(REPLACED_S)
    assert world.decided.leader == 3
    assert world.produced()


def a_request_is_made_unheard_and_its_leader_is_replaced() -> None:
    """The leader, alone in sync, asks for a set of two, and hears no answer.  The other one is
    elected by that set."""
    world = running()
    stop(world, 2, 3)
    world.settle(3.0)
    start(world, 2)
    while not asked_for_two(world):
        for broker in world.hosts:
            world.sync(broker)
        if world.network:
            world.deliver(0)
            world.replicate()
        else:
            world.open_streams()
            world.pass_time(0.05)
            for broker in world.hosts:
                world.pulse(broker)
    asked = asked_for_two(world)
    for envelope in asked:
        world.deliver(world.network.index(envelope))
        world.sync(envelope.to)
    world.cut = frozenset({1})
    produce(world)
    world.settle(3 * REPLACED_S)
    assert world.decided.leader == 2
    assert world.nodes[1].leads
    # Its request is answered before its replica is told who leads.
    held: list[tuple[Node, PartitionRecord | None]] = []
    tell = world.tell
    world.tell = lambda node, record=None: held.append((node, record))  # type: ignore[method-assign]
    world.cut = frozenset()
    replica = world.nodes[1].replica
    assert replica is not None
    assert replica.repeated is not None
    world.send(world.nodes[1], 0, replica.repeated)
    for _ in range(100):
        world.flow()
        if held:
            break
        world.pass_time(0.05)
    del world.tell
    for node, record in held:
        tell(node, record)
    world.settle(2.0)
    assert not world.nodes[1].leads
    assert world.produced()


def asked_for_two(world: PartitionWorld) -> list[Envelope]:
    """The messages with which the first broker has acceptors accept a set of two."""
    return [
        one
        for one in world.network
        if isinstance(one.message, ForAcceptor)
        and isinstance(one.message.message, m.AcceptValue)
        and one.sender == 1
        and one.to in {2, 4, 5}
        and decode_partition(one.message.message.value.content).record.in_sync == [1, 2]
    ]


# --- the mistakes --------------------------------------------------------------------------


def any_replica_is_elected(patch: pytest.MonkeyPatch) -> None:
    decide = Election.decide

    def from_all(
        self: Election, record: PartitionRecord, *seen: object, **options: object
    ) -> PartitionRecord | None:
        everybody = attrs.evolve(record, in_sync=record.replicas)
        return decide(self, everybody, *seen, **options)  # type: ignore[arg-type]

    patch.setattr(Election, "decide", from_all)


def a_replica_that_is_not_intact_stays_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_changes, "without", lambda record, broker: record)


def a_leader_believes_a_refusal_because_of_a_newer_epoch(patch: pytest.MonkeyPatch) -> None:
    """Two rules stand against it, each of which is enough: what `judge_in_sync` says, and that a
    replica takes the record in an answer first."""

    def judge(request: m.AlterInSync, record: PartitionRecord) -> InSyncVerdict:
        return InSyncVerdict.REFUSED

    def refused_first(
        self: PartitionReplica, message: m.InSyncAltered, now: float
    ) -> list[PartitionEffect]:
        effects: list[PartitionEffect] = []
        if self.leader is not None and not message.accepted:
            effects += self.leader.refused(message.asked)
        return effects + self.installed(message.record, now)

    patch.setattr(ring_partition, "judge_in_sync", judge)
    patch.setattr(PartitionReplica, "in_sync_altered", refused_first)


SCENARIOS = [
    (a_leader_alone_in_sync_wants_a_replica_that_lacks_its_messages, any_replica_is_elected),
    (
        a_replica_loses_acknowledged_messages_and_the_others_die,
        a_replica_that_is_not_intact_stays_in_sync,
    ),
    (
        a_request_is_made_unheard_and_its_leader_is_replaced,
        a_leader_believes_a_refusal_because_of_a_newer_epoch,
    ),
]


@pytest.mark.parametrize("scenario", [one for one, _ in SCENARIOS], ids=lambda one: one.__name__)
def test_nothing_acknowledged_is_lost(scenario: Callable[[], None]) -> None:
    scenario()


@pytest.mark.parametrize(
    ("scenario", "mistake"), SCENARIOS, ids=[mistake.__name__ for _, mistake in SCENARIOS]
)
def test_the_mistake_is_noticed(
    scenario: Callable[[], None], mistake: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, ViolationError)):
        scenario()
