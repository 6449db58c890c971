"""Random walks: faults of all kinds, and then a network that is whole."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from octopi.relay.buffer import BufferBounds
from tests.relay.parts import WatchedMember
from tests.relay.world import RelayWorld


def walk(
    seed: int,
    members: int = 3,
    *,
    faults_s: float = 20.0,
    messages: int = 40,
    losses: bool = True,
    moves: int = 0,
    bounds: BufferBounds | None = None,
    make: Callable[..., WatchedMember] = WatchedMember,
) -> RelayWorld:
    """Faults for some time, then a whole network: all relays are alike in the end, and each message
    is acknowledged.  *moves*: how often a member is added or removed.

    Raises:
      BrokenRule: if a rule is broken.
    """
    random = Random(seed)
    world = RelayWorld(random, members, 1 + 2 * bool(moves), bounds=bounds, make=make)
    for broker in world.brokers.values():
        broker.skew_s = random.uniform(-0.5, 0.5)
    for _ in range(messages):
        world.at(random.uniform(0.5, faults_s), lambda: _begin(world))
    kinds = ["split", "cut", "lossy", "pause", "clock"]
    if losses:
        kinds += ["crash", "crash", "split", "flip"]
    for _ in range(random.randrange(2, 8)):
        kind = random.choice(kinds)
        world.at(random.uniform(1, faults_s - 3), partial(_fault, world, kind))
    for _ in range(moves):
        world.at(random.uniform(2, faults_s), partial(_move, world))
    world.run(faults_s)
    world.heal()
    for broker in world.brokers.values():
        if not broker.alive:
            world.restart(broker.number)
    world.run_until(lambda: all(one.receipt is not None for one in world.producing), 45)
    world.run_until_alike(15)
    world.check_must(world.member(world.in_force.ranked[0]), "in the end")
    return world


def _begin(world: RelayWorld) -> None:
    random = world.random
    receiver = random.choice(list(world.brokers))
    one = world.produce(receiver, random.choice(world.topics), count=random.choice([1, 1, 1, 3]))

    def again() -> None:
        if one.receipt is None:
            world.send(one, random.choice(list(world.brokers)))
            world.at(world.now + random.uniform(0.3, 0.8), again)

    world.at(world.now + random.uniform(0.3, 0.8), again)


def _move(world: RelayWorld) -> None:
    """Order one member more, or less."""
    random, now = world.random, list(world.relay_set.ranked)
    if world.in_force != world.relay_set:
        return
    others = [one for one in world.brokers if one not in now and world.brokers[one].alive]
    dead = [one for one in now if not world.brokers[one].alive]
    if len(now) > 2 and (not others or random.random() < 0.5):
        now.remove(random.choice(dead or now))
    elif others and len(now) < 5:
        now.append(random.choice(others))
    else:
        return
    world.order(now)


def _fault(world: RelayWorld, kind: str) -> None:
    random, members = world.random, list(world.relay_set.ranked)
    number = random.choice(members)
    world.stats[kind] += 1
    match kind:
        case "crash" if world.brokers[number].alive:
            world.crash(number)
            world.at(
                world.now + random.choice([0.05, 0.3, 1.0, 4.0]),
                lambda: None if world.brokers[number].alive else world.restart(number),
            )
        case "split":
            side = random.sample(members, random.randrange(1, len(members)))
            world.split(side, heals_after=random.choice([0.2, 0.8, 3.0, 12.0]))
        case "cut":
            low, high = random.sample(members, 2)
            pair = (low, high)
            world.cut.add(pair)
            world.at(world.now + random.uniform(0.5, 5), lambda: world.cut.discard(pair))
        case "lossy":
            world.loss, world.doubling = random.choice([(0.02, 0.1), (0.2, 0.2)])
            world.at(world.now + random.uniform(0.5, 4), lambda: _clean(world))
        case "pause":
            world.pause(number, random.choice([0.2, 0.7, 2.0]))
        case "clock":
            world.brokers[number].skew_s += random.choice([-5, -0.01, 3])
        case "flip" if world.brokers[number].alive and world.brokers[number].member:
            world.flip(number)


def _clean(world: RelayWorld) -> None:
    world.loss = world.doubling = 0.0
