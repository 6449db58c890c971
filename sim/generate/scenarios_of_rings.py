"""Scenarios of clusters without a register."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Place,
    Slow,
    Stop,
    Way,
)
from octopi.simulation.faults.damage import Damage
from sim.generate.fault_patterns import some_seconds
from sim.generate.scenario import Scenario

FORMED_S: Final = 1.5
"""When brokers serve mostly, and clients begin to work (virtual seconds)."""

_ELECTING: Final = (
    "A2a",
    "A2b",
    "A2b",
    "A3",
    "E4",
    "E6a",
    "E6b",
    "E10b",
    "E11",
    "E12",
    "D2a",
    "D2b",
)
_TOPICS: Final = ("T3a", "T3b", "T7a", "T7b", "T9a", "T9b")


def _options(randomness: Random, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    founders = randomness.choice((3, 3, 5, 5, 4))
    options = {"brokers": founders, "founders": founders, "replicas": 3, "faults_s": FORMED_S + 8.0}
    return {**options, **more}


def _load(**more: Any) -> dict[str, Any]:  # noqa: ANN401
    # Queues need topics beside others, which such clusters don't make yet.
    load = {"entrances": "brokers", "member_mode": "failover", "pause_s": 0.05, "records": 60}
    return {**load, **more}


def _working(randomness: Random) -> Place:
    return AtTime(some_seconds(randomness, FORMED_S, FORMED_S + 1.5))


def _death(randomness: Random) -> Action:
    kind = randomness.choice((Kill, LosePower, Stop))
    return kind(randomness.choice((0.0, 0.1, 0.6, 2.0)))


def _after(randomness: Random, least: float, most: float) -> Place:
    return AtTime(some_seconds(randomness, least, most), behind=True)


def ring_leader_dies(randomness: Random) -> Scenario:
    """A leader dies, and whoever elects another one dies at a step of that."""
    faults = [InjectedFault(_working(randomness), _death(randomness), "leader")]
    for _ in range(randomness.choice((1, 1, 2))):
        step = AtStep(
            randomness.choice(_ELECTING), occurrence=randomness.randint(1, 12), behind=True
        )
        faults.append(InjectedFault(step, _death(randomness)))
    return Scenario(tuple(faults), _options(randomness), _load())


def ring_leader_is_cut_off(randomness: Random) -> Scenario:
    """A leader is cut off from all others, or from one that then takes it for dead alone, or hears
    less than it says; and it comes back when another one leads."""
    ways: tuple[Way, ...] = ("both", "both", "in", "out")
    peer = randomness.choice(("others", "others", "broker-1", "broker-2", "broker-3"))
    cut = Cut(
        peer,
        some_seconds(randomness, 0.8, 3.0),
        randomness.choice(ways),
        randomness.random() < 0.3,
        randomness.random() < 0.5,
    )
    faults = [InjectedFault(_working(randomness), cut, "leader")]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(_after(randomness, 0.5, 2.0), _death(randomness), "leader"))
    return Scenario(tuple(faults), _options(randomness), _load())


def ring_leader_is_replaced_while_it_is_cut_off(randomness: Random) -> Scenario:
    """A leader is cut off for longer than others need to replace it, and no longer than a right
    would last that is too long."""
    cut = Cut("others", some_seconds(randomness, 2.0, 3.0), resets=randomness.random() < 0.5)
    faults = (InjectedFault(_working(randomness), cut, "leader"),)
    return Scenario(faults, _options(randomness, founders=3, brokers=3), _load())


def ring_answers_come_late(randomness: Random) -> Scenario:
    """The connections of a leader are slow, so the answers to its pulses are old when they come;
    then it still hears the others, and they don't hear it."""
    slow = Slow("others", 4.0, latency_s=some_seconds(randomness, 0.4, 0.6))
    cut = Cut("others", 2.5, "out")
    faults = (
        InjectedFault(_working(randomness), slow, "leader"),
        InjectedFault(_after(randomness, 1.0, 1.6), cut, "leader"),
    )
    return Scenario(faults, _options(randomness, founders=3, brokers=3), _load())


def ring_follower_restarts_when_the_leader_is_cut_off(randomness: Random) -> Scenario:
    """A leader is not heard by one follower, which tries to replace it.  Then it is not heard by
    the other one either, which is started again at that moment: it may have granted the leader
    the right to lead just before."""
    options = _options(randomness, founders=3, brokers=3)
    dies = randomness.choice((Kill, LosePower))(some_seconds(randomness, 0.0, 0.05))
    faults = (
        InjectedFault(_working(randomness), Cut("broker-2", 5.0), "broker-1"),
        InjectedFault(_after(randomness, 1.2, 2.2), Cut("broker-3", 2.0), "broker-1"),
        InjectedFault(AtTime(0.0, behind=True), dies, "broker-3"),
    )
    return Scenario(faults, options, _load())


def ring_leader_sleeps(randomness: Random) -> Scenario:
    """A leader is paused, and goes on when another one leads, or is about to."""
    seconds = randomness.choice((some_seconds(randomness, 0.7, 1.3), 2.0))
    faults = [InjectedFault(_working(randomness), Pause(seconds), "leader")]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(_after(randomness, 0.0, 1.5), _death(randomness), "follower"))
    return Scenario(tuple(faults), _options(randomness), _load())


def ring_acceptors_lose_power(randomness: Random) -> Scenario:
    """While a leader is replaced, acceptors lose their power when they have answered, and others
    propose then."""
    faults = [
        InjectedFault(_working(randomness), Kill(some_seconds(randomness, 0.0, 2.0)), "leader")
    ]
    for _ in range(randomness.choice((1, 2, 3))):
        step = AtStep(
            randomness.choice(("A2b", "A2b", "A2a")),
            occurrence=randomness.choice((1, 2, 3, 4, 6, 9)),
            behind=True,
        )
        faults.append(InjectedFault(step, LosePower(0.0)))
    return Scenario(tuple(faults), _options(randomness), _load())


def ring_sets_shrink(randomness: Random) -> Scenario:
    """Followers are away one after the other, so the leader asks for other in-sync sets; then it
    dies, or is cut off, before that is told to all."""
    away = randomness.choice((Pause(1.5), Kill(1.0), Cut("leader", 1.5)))
    faults = [InjectedFault(_working(randomness), away, "follower")]
    step = AtStep(
        randomness.choice(("E16a", "E16b", "A2a", "A2b")),
        behind=True,
        occurrence=randomness.choice((1, 1, 2, 3)),
    )
    faults.append(
        InjectedFault(
            step,
            randomness.choice(
                (Kill(0.5), LosePower(0.2), Cut("others", 1.5), Slow("others", 1.0, latency_s=0.4))
            ),
            "leader",
        )
    )
    if randomness.random() < 0.6:
        faults.append(InjectedFault(_after(randomness, 0.2, 2.0), _death(randomness), "follower"))
    return Scenario(tuple(faults), _options(randomness), _load())


def ring_comes_back_with_less(randomness: Random) -> Scenario:
    """A follower loses what was in its memory, or a file, and the leader dies before, or when, the
    follower is registered again."""
    lossy: Action = randomness.choice(
        (
            LosePower(0.0),
            LosePower(0.4),
            Damage("cut", "log", 0.2),
            Damage("missing", "directory", 0.2),
        )
    )
    faults = [InjectedFault(_working(randomness), lossy, "follower")]
    step = AtStep(
        randomness.choice(("A2b", "A3", "E12", "J9b", "E6a")),
        behind=True,
        occurrence=randomness.choice((1, 2, 4, 8)),
    )
    faults.append(InjectedFault(step, Kill(some_seconds(randomness, 0.5, 2.0)), "leader"))
    options = _options(randomness, flush_interval_s=1.0, checkpoint_bytes=2000)
    return Scenario(tuple(faults), options, _load())


def ring_loses_records_while_the_leader_sleeps(randomness: Random) -> Scenario:
    """A follower loses what was in its memory while the leader is paused, so it is registered again
    before the leader can ask for an in-sync set without it."""
    faults = (
        InjectedFault(
            AtTime(some_seconds(randomness, FORMED_S + 1.0, FORMED_S + 2.5)),
            Pause(some_seconds(randomness, 0.5, 2.5)),
            "leader",
        ),
        InjectedFault(_after(randomness, 0.0, 0.1), LosePower(0.0), "follower"),
    )
    options = _options(
        randomness, founders=3, brokers=3, flush_before_ack=False, flush_interval_s=30.0
    )
    return Scenario(faults, options, _load())


def ring_all_restart(randomness: Random) -> Scenario:
    """All brokers are restarted within a second, in some order, perhaps by a power failure."""
    options = _options(randomness)
    kind = randomness.choice((Kill, Stop))
    names = [f"broker-{one + 1}" for one in range(options["brokers"])]
    randomness.shuffle(names)
    first, *others = names
    faults = [InjectedFault(_working(randomness), kind(some_seconds(randomness, 0.1, 1.0)), first)]
    faults += [
        InjectedFault(_after(randomness, 0.0, 0.1), kind(some_seconds(randomness, 0.1, 1.0)), one)
        for one in others
    ]
    return Scenario(tuple(faults), options, _load())


def ring_topics_come_and_go(randomness: Random) -> Scenario:
    """Topics in several partitions are made, altered and deleted; leaders of their homes, or of
    their partitions, die meanwhile."""
    faults = []
    for _ in range(randomness.choice((0, 1, 2, 3))):
        place: Place = AtStep(randomness.choice(_TOPICS), occurrence=randomness.randint(1, 30))
        if randomness.random() < 0.3:
            place = _working(randomness)
        target = "here" if isinstance(place, AtStep) and randomness.random() < 0.7 else "leader"
        faults.append(InjectedFault(place, _death(randomness), target))
    chores = ["topic", "renew", "topic", "alter", "renew"]
    randomness.shuffle(chores)
    load = _load(chores=tuple(chores), topic_partitions=randomness.choice((1, 2, 3)))
    options = _options(randomness, partitions=randomness.choice((3, 4)), min_insync=1)
    return Scenario(tuple(faults), options, load)


def ring_topics_go_while_leaders_change(randomness: Random) -> Scenario:
    """A broker dies when it begins to remove the logs of a deleted topic, before the others have
    heard that they shall.  These take long to store what their replicas promise to the next
    leaders; so some replicas are not done with that when others remove the topic's logs."""
    options = _options(randomness, founders=3, brokers=3, partitions=4, min_insync=1)
    delay = Delay(some_seconds(randomness, 0.03, 0.3))
    faults = [
        InjectedFault(
            AtTime(FORMED_S),
            BreakDisk(DiskFault("sync", delay, ".new", times=2000)),
            f"broker-{number}",
        )
        for number in (1, 2, 3)
    ]
    step = randomness.choice(("T7a", "T7a", "T7b"))
    for occurrence in sorted(randomness.sample(range(1, 16), 3)):
        dies = Kill(randomness.choice((0.1, 0.5, 1.5)))
        faults.append(InjectedFault(AtStep(step, "any", occurrence), dies))
    load = _load(chores=("topic", "topic", "renew", "topic"), topic_partitions=2, records=80)
    return Scenario(tuple(faults), options, load)


def ring_forms_in_trouble(randomness: Random) -> Scenario:
    """Founders die while they form the cluster, and some begin late."""
    faults = []
    for _ in range(randomness.choice((1, 2, 3))):
        place: Place = AtTime(some_seconds(randomness, 0.0, 2.0))
        if randomness.random() < 0.5:
            step = randomness.choice(("A1", "A2a", "A2b", "A2b"))
            place = AtStep(step, occurrence=randomness.choice((1, 2, 3, 5, 8)))
        target = "broker" if isinstance(place, AtTime) else "here"
        kind = randomness.choice((Kill, LosePower, Stop))
        faults.append(InjectedFault(place, kind(some_seconds(randomness, 0.0, 2.0)), target))
    if randomness.random() < 0.4:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.1, 1.0)), times=9))
        faults.append(InjectedFault(AtTime(0.1), slow, "broker"))
    options = _options(randomness)
    if randomness.random() < 0.5:
        options["brokers"] += 1
    return Scenario(tuple(faults), options, _load())


def ring_splits(randomness: Random) -> Scenario:
    """A broker after the other is cut off, for times that overlap, so that now one side has a
    majority and now none; then all hear each other again."""
    options = _options(randomness)
    faults = []
    for number in randomness.sample(range(1, options["brokers"] + 1), options["brokers"] // 2 + 1):
        cut = Cut("others", some_seconds(randomness, 1.0, 4.0), resets=randomness.random() < 0.5)
        faults.append(InjectedFault(_working(randomness), cut, f"broker-{number}"))
    return Scenario(tuple(faults), options, _load())


RING_SCENARIOS: Final[tuple[Callable[[Random], Scenario], ...]] = (
    ring_leader_dies,
    ring_leader_dies,
    ring_leader_is_cut_off,
    ring_leader_is_replaced_while_it_is_cut_off,
    ring_answers_come_late,
    ring_follower_restarts_when_the_leader_is_cut_off,
    ring_leader_sleeps,
    ring_acceptors_lose_power,
    ring_sets_shrink,
    ring_sets_shrink,
    ring_comes_back_with_less,
    ring_loses_records_while_the_leader_sleeps,
    ring_all_restart,
    ring_topics_come_and_go,
    ring_topics_come_and_go,
    ring_topics_go_while_leaders_change,
    ring_forms_in_trouble,
    ring_splits,
)
"""All of them; they are drawn by `sim.generate.rings` only."""
