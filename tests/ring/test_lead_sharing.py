"""Leads are shared evenly, by brokers that don't ask each other, and come to rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from random import Random

import attrs
import pytest

from octopi.coordination.agreed_partition import AgreedPartition
from octopi.coordination.placement import LeaderMove
from octopi.identifiers import BrokerId, Epoch, Incarnation, PartitionId
from octopi.limits import HAND_OVERS_MAX, SHARE_LEADS_S
from octopi.model import PartitionRecord
from octopi.ring.lead_sharing import LeadSharing


def led_by(leaders: Sequence[int], brokers: Iterable[int] = (1, 2, 3)) -> list[AgreedPartition]:
    """Partitions with these leaders, and replicas in sync on all *brokers*."""
    ids = [BrokerId(one) for one in brokers]
    return [
        AgreedPartition(
            PartitionRecord(
                PartitionId(number), Epoch(1), 0, BrokerId(leader), Incarnation(1), ids, ids
            ),
            Epoch(1),
        )
        for number, leader in enumerate(leaders)
    ]


def moved(partitions: list[AgreedPartition], moves: Iterable[LeaderMove]) -> list[AgreedPartition]:
    """The partitions after *moves*."""
    leaders = {one.partition: one.leader for one in moves}
    after = []
    for one in partitions:
        record = one.record
        if (leader := leaders.get(record.partition)) is not None:
            epoch = Epoch(record.epoch + 1)
            record = attrs.evolve(record, leader=leader, epoch=epoch)
            one = AgreedPartition(record, epoch)
        after.append(one)
    return after


def due(partitions: list[AgreedPartition], willing: Iterable[int]) -> list[LeaderMove]:
    """The moves that are due when nothing has changed for long enough."""
    sharing, brokers = LeadSharing(), [BrokerId(one) for one in willing]
    assert sharing.moves(partitions, brokers, 10.0) == []
    return sharing.moves(partitions, brokers, 10.0 + SHARE_LEADS_S)


def counts(partitions: list[AgreedPartition]) -> Counter[int]:
    return Counter(one.record.leader for one in partitions)


def test_a_broker_that_leads_nothing_gets_its_share() -> None:
    partitions = led_by([1, 1, 1, 2, 2, 2])
    after = moved(partitions, due(partitions, [1, 2, 3]))
    assert counts(after) == {1: 2, 2: 2, 3: 2}
    assert due(after, [1, 2, 3]) == [], "at rest nothing moves"


def test_nobody_gets_a_lead_who_is_away_or_not_to_lead() -> None:
    partitions = led_by([1, 1, 1, 1])
    assert counts(moved(partitions, due(partitions, [1, 2]))) == {1: 2, 2: 2}
    assert due(partitions, [1]) == []


def test_nothing_moves_while_leaders_or_brokers_change() -> None:
    sharing, partitions = LeadSharing(), led_by([1, 1, 1, 1])
    brokers = [BrokerId(1), BrokerId(2)]
    now = 0.0
    for willing in (brokers, brokers[:1]) * 4:
        assert sharing.moves(partitions, willing, now) == []
        now += SHARE_LEADS_S * 0.9
    assert sharing.moves(partitions, brokers, now) == []
    announced = [attrs.evolve(partitions[0], announced=Epoch(2)), *partitions[1:]]
    assert sharing.moves(announced, brokers, now + SHARE_LEADS_S) == []
    first = sharing.moves(announced, brokers, now + 2 * SHARE_LEADS_S)
    assert {one.partition for one in first} <= {1, 2, 3}, "an election is under way in the other"
    assert first
    assert sharing.moves(announced, brokers, now + 2.5 * SHARE_LEADS_S) == [], "give it time"
    assert sharing.moves(announced, brokers, now + 3 * SHARE_LEADS_S) == first


def test_some_move_at_a_time() -> None:
    partitions = led_by([1] * 100)
    moves = due(partitions, [1, 2])
    assert len(moves) == HAND_OVERS_MAX
    rounds = 0
    while moves:
        partitions = moved(partitions, moves)
        moves = due(partitions, [1, 2])
        rounds += 1
    assert counts(partitions) == {1: 50, 2: 50}
    assert rounds == 4


@pytest.mark.parametrize("seed", range(20))
def test_brokers_that_know_of_moves_late_come_to_rest_all_the_same(seed: int) -> None:
    """Each broker carries out its own moves of the plan that it computes from what it knew a while
    ago."""
    random = Random(seed)
    brokers = list(range(1, random.randint(3, 7)))
    partitions = [
        attrs.evolve(
            one,
            record=attrs.evolve(
                one.record,
                leader=(ids := sorted(random.sample(one.record.replicas, 2)))[0],
                replicas=ids,
                in_sync=ids,
            ),
        )
        for one in led_by([1] * random.randint(5, 40), brokers)
    ]
    known = dict.fromkeys(brokers, partitions)
    quiet = 0
    for _ in range(200):
        for broker in random.sample(brokers, len(brokers)):
            own = [
                one
                for one in due(known[broker], brokers)
                if partitions[one.partition].record.leader == broker
            ]
            partitions = moved(partitions, own)
            quiet = 0 if own else quiet + 1
            if random.random() < 0.6:
                known[random.choice(brokers)] = partitions
        if quiet > 20 * len(brokers):
            break
    assert quiet > 20 * len(brokers), "it never comes to rest"
    known = dict.fromkeys(brokers, partitions)
    assert due(partitions, brokers) == []
