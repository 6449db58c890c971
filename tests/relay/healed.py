"""Relays after a split has healed: each is anything that a split may have made of it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs

from octopi.identifiers import BrokerId
from octopi.relay.message_ids import message_id
from octopi.relay.messages import RelayStatus
from octopi.relay.stream import one_run
from octopi.relay.streams import RelayStreams
from octopi.relay.timelines import NEVER, RelayEpoch, Timeline
from tests.relay.parts import BrokenRule, produced
from tests.relay.scenarios import settle
from tests.relay.world import RelayWorld

_A, _B, _C, _D = Timeline(1, 1), Timeline(2, 7), Timeline(2, 9), Timeline(3, 5)
"""Two have one generation, and different names."""


@attrs.frozen
class Kind:
    """What one relay is."""

    status: RelayStatus
    epoch: RelayEpoch = NEVER
    held: RelayEpoch = NEVER
    count: int = 0
    """How many transactions it holds."""
    generation: int = 0
    has_relic: bool = False


def _kinds() -> list[Kind]:
    joining, normal = RelayStatus.JOINING, RelayStatus.NORMAL
    changing, fenced = RelayStatus.CHANGING, RelayStatus.FENCED
    first = RelayEpoch(_A, 0)
    kinds = [
        Kind(joining, generation=1),
        Kind(joining, generation=3),
        Kind(joining, held=first, count=3, generation=2, has_relic=True),
        Kind(joining, held=RelayEpoch(_B, 0), count=1, generation=2, has_relic=True),
    ]
    for timeline, number, count in ((_A, 0, 2), (_A, 1, 3), (_B, 0, 1), (_C, 1, 2), (_D, 2, 1)):
        epoch = RelayEpoch(timeline, number)
        generation = timeline.generation
        kinds += [Kind(one, epoch, epoch, count, generation) for one in (normal, fenced)]
    for epoch, held, count in (
        (RelayEpoch(_A, 2), first, 2),
        (RelayEpoch(_B, 0), RelayEpoch(_A, 1), 3),
        (RelayEpoch(_B, 0), NEVER, 0),
        (RelayEpoch(_B, 1), RelayEpoch(_B, 0), 1),
        (RelayEpoch(_C, 1), first, 2),
        (RelayEpoch(_C, 1), NEVER, 0),
        (RelayEpoch(_D, 2), RelayEpoch(_B, 0), 1),
        (RelayEpoch(_D, 2), NEVER, 0),
    ):
        generation = epoch.timeline.generation
        kinds += [Kind(one, epoch, held, count, generation) for one in (changing, fenced)]
    return kinds


KINDS = _kinds()


def heal(kinds: Sequence[Kind], seed: int) -> None:
    """Relays that are *kinds* hear each other: within 8 s all are alike, and take what comes.

    Raises:
      BrokenRule: if they are not, or a rule is broken.
    """
    world = RelayWorld(Random(seed), len(kinds), topics=1)
    for number, kind in zip(world.relay_set.ranked, kinds, strict=True):
        _become(world, number, kind)
    one = world.produce(world.relay_set.ranked[0], world.topics[0])
    world.run_until(lambda: world.sequencer is not None, 8)
    try:
        settle(world, 8)
    except BrokenRule as error:
        raise BrokenRule(f"{kinds}: {error}") from error
    if one.receipt is None:
        raise BrokenRule("nothing is taken")


def _become(world: RelayWorld, number: BrokerId, kind: Kind) -> None:
    member = world.member(number)
    streams = RelayStreams(number, world.relay_set, member.rules, member._effects.append)
    for place in range(kind.count):
        line = kind.held.timeline
        records = produced(10_000 * line.generation + 100 * line.name + place, [b"old"])
        run = one_run(records)
        assert run is not None
        identity = message_id(place, line.to_bytes()[2:], 0)
        streams.open(world.topics[0]).append(identity, BrokerId(1), records, run, 0.0)
    member.generation = world.brokers[number].generation = kind.generation
    if kind.has_relic:
        member.relic = (kind.held, world.relay_set, streams)
        return
    member.status, member.epoch, member.held = kind.status, kind.epoch, kind.held
    member.streams = streams
    member.streams.epoch = kind.held
    world.brokers[number].status = kind.status
    world.timelines |= {kind.held.timeline, kind.epoch.timeline} - {NEVER.timeline}
    if kind.status is RelayStatus.FENCED:
        member._fence.closed, member._was_normal = True, kind.epoch == kind.held
    if kind.status is RelayStatus.NORMAL:
        for stream in streams:
            streams.write(stream, 0.0)
        world._perform(world.brokers[number], member._take())


def heal_any(seed: int, members: int = 3) -> None:
    """Any of all combinations."""
    random = Random(seed)
    heal(random.choices(KINDS, k=members), seed)
