"""A large ring in which brokers come, die and leave all the time: look-ups all the while (T20), and
what that moves (T21)."""

from __future__ import annotations

from collections import Counter
from random import Random

import attrs

from octopi.identifiers import PartitionId
from octopi.ring.groups import candidates
from octopi.ring.lookup import HolderFound
from octopi.ring.points import RING_SIZE, choose_point, distance, partition_key
from octopi.wire.ring import RingNode
from tests.ring.nodes import node
from tests.ring.world import BrokenRule, RingWorld, check_lookups, check_outcomes

REPLICAS = 3


@attrs.define
class Churn:
    """A run, and what came of it."""

    world: RingWorld
    random: Random
    changes: int = 0
    lookups: Counter[str] = attrs.field(factory=Counter)
    steps: list[int] = attrs.field(factory=list)
    moved: int = 0
    """Pairs of a change and a key that were checked."""
    repaired_s: float = 0.0


def run(
    brokers: int,
    seconds: float,
    *,
    per_minute: float,
    seed: int = 1,
    book_count_max: int = 512,
    lookups_per_s: float = 5.0,
    partitions: int = 100,
) -> Churn:
    """Have brokers join, leave or die *per_minute* times a minute for some *seconds*, then stop
    and look everything up again.

    Raises:
      BrokenRule: if a rule is broken.
    """
    random = Random(seed)
    world = RingWorld(random, book_count_max=book_count_max, checks=False)
    nodes: list[RingNode] = []
    for number in range(1, brokers + 1):
        point = choose_point([one.point for one in nodes], random.random)
        nodes.append(node(number, point=point))
    world.place(nodes)
    world.run(2)
    churn = Churn(world, random)
    keys = [PartitionId(number) for number in range(partitions)]
    until = world.now + seconds
    change_at = world.now
    while world.now < until:
        while change_at <= world.now:
            change_at += 60 / per_minute
            before = [one.node for one in world.members]
            changed = _change(world, random, brokers)
            churn.changes += 1
            check_moves(before, changed, keys)
            churn.moved += len(keys)
        for _ in range(round(lookups_per_s)):
            members = [one.node.broker for one in world.members]
            world.look_up(random.choice(members), random.randrange(RING_SIZE))
        world.run(1.0)
        _count(churn)
    churn.repaired_s = world.run_until_ideal(120)
    check_lookups(world, random, brokers)
    _count(churn)
    return churn


def _change(world: RingWorld, random: Random, brokers: int) -> RingNode:
    """A broker joins, dies or leaves; return it."""
    members = [one.node for one in world.members]
    if random.random() < 0.5 or len(members) < brokers // 2:
        number = max(world.brokers) + 1
        point = choose_point([one.point for one in members], random.random)
        world.start(number, [one.broker for one in random.sample(members, 3)], point=point)
        return world.brokers[number].node
    gone = random.choice(members)
    if random.random() < 0.3:
        world.leave(gone.broker)
    else:
        world.kill(gone.broker, hangs=random.random() < 0.5)
    return gone


def check_moves(before: list[RingNode], changed: RingNode, keys: list[PartitionId]) -> None:
    """A broker that joins or leaves moves only the keys between the n-th one before it and it."""
    others = [one for one in before if one != changed]
    ways = sorted(distance(one.point, changed.point) for one in others)
    for key in keys:
        with_it = candidates(key, [*others, changed])[:REPLICAS]
        without_it = candidates(key, others)[:REPLICAS]
        way = distance(partition_key(key), changed.point)
        if (with_it[0] != without_it[0]) != (way < ways[0]):
            raise BrokenRule(f"the holder of {key} moves without need")
        if (with_it != without_it) != (way < ways[REPLICAS - 1]):
            raise BrokenRule(f"the group of {key} moves without need")
        if len(set(with_it) - set(without_it)) > 1:
            raise BrokenRule(f"the group of {key} changes by more than one member")


def _count(churn: Churn) -> None:
    """Sort the look-ups that have an outcome by what came of them."""
    world = churn.world
    check_outcomes(world)
    for asked in world.asked:
        if asked.counted or asked.outcome is None:
            continue
        asked.counted = True
        if not isinstance(asked.outcome, HolderFound):
            churn.lookups[asked.outcome.why] += 1
            continue
        churn.steps.append(asked.outcome.steps)
        found = asked.outcome.holder.broker
        if found == asked.wanted:
            churn.lookups["as the sorted list"] += 1
        elif asked.wanted is not None:
            churn.lookups["another live broker"] += 1
