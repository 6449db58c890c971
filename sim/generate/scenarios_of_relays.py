"""Scenarios of topics in memory, in clusters with a register."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from octopi.simulation.faults.actions import (
    Action,
    AtStep,
    AtTime,
    Cut,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Place,
    Reset,
    Slow,
    Stop,
    Way,
    Wipe,
)
from sim.generate.fault_patterns import some_seconds
from sim.generate.scenario import Scenario

FORMED_S: Final = 1.0
"""When relays have begun an epoch, mostly, and clients work (virtual seconds)."""

_LOST_S: Final = 10.0
"""How long a relay has to be silent before others begin a timeline without it."""
_OF_A_MESSAGE: Final = (
    *("M1", "M2a", "M2b", "M3a", "M3a", "M3b", "M4a", "M4b", "M5a", "M5b", "M6", "M7a", "M7b"),
)
_OF_A_CHANGE: Final = (
    *("M9", "M10a", "M10b", "M11a", "M11a", "M11b", "M17a", "M17b", "M18a", "M18b", "M15b"),
    *("M16a", "M16b"),
)
_OF_A_FOUNDING: Final = ("M9", "M10a", "M10b", "M11a", "M11b", "M12a", "M12b", "M13", "M14")


def _options(randomness: Random, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    options = {
        "brokers": randomness.choice((3, 3, 4)),
        "replicas": 3,
        "min_insync": 1,
        "kills_each": False,
        "faults_s": FORMED_S + 6.0,
    }
    return {**options, **more}


def _load(randomness: Random, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    load = {
        "relay_topics": randomness.choice((1, 1, 2)),
        "named_producers": 0,
        "members": 0,
        "chores": (),
        "records": 60,
        "consumers": 3,
        "pause_s": randomness.choice((0.03, 0.05)),
    }
    return {**load, **more}


def _working(randomness: Random) -> Place:
    return AtTime(some_seconds(randomness, FORMED_S, FORMED_S + 1.0))


def _after(randomness: Random, least: float, most: float) -> Place:
    return AtTime(some_seconds(randomness, least, most), behind=True)


def _death(randomness: Random) -> Action:
    kind = randomness.choice((Kill, Kill, LosePower, Stop))
    return kind(randomness.choice((0.0, 0.1, 0.6, 2.0)))


def relay_dies_at_a_step(randomness: Random) -> Scenario:
    """The receiver, the sequencer or another member dies at a step of a message, or at its
    repetition."""
    step = AtStep(
        randomness.choice(_OF_A_MESSAGE),
        randomness.choice(("sequencer", "relay", "any")),
        randomness.choice((20, 30, 50, 80)),
    )
    return Scenario(
        (InjectedFault(step, _death(randomness)),), _options(randomness), _load(randomness)
    )


def relay_sequencer_dies(randomness: Random) -> Scenario:
    """The sequencer dies, and another relay at a step of the change that follows."""
    faults = [InjectedFault(_working(randomness), _death(randomness), "sequencer")]
    for _ in range(randomness.choice((0, 1, 1, 2))):
        step = AtStep(
            randomness.choice(_OF_A_CHANGE), behind=True, occurrence=randomness.randint(1, 8)
        )
        faults.append(InjectedFault(step, _death(randomness)))
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_link_is_cut(randomness: Random) -> Scenario:
    """One link to the sequencer is cut: the others are not held up."""
    cut = Cut("sequencer", some_seconds(randomness, 0.5, 4.0), holds=randomness.random() < 0.3)
    fault = InjectedFault(_working(randomness), cut, "relay")
    return Scenario((fault,), _options(randomness), _load(randomness))


def relay_sequencer_is_isolated(randomness: Random) -> Scenario:
    """The sequencer is cut off from all, in one direction or in both, and comes back; its clients
    go on elsewhere, and what they had sent is sent again."""
    ways: tuple[Way, ...] = ("both", "both", "in", "out")
    peer = randomness.choice(("others", "others", "broker"))
    cut = Cut(peer, some_seconds(randomness, 0.5, 4.0), randomness.choice(ways))
    faults = [InjectedFault(_working(randomness), cut, "sequencer")]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(_after(randomness, 0.0, 3.0), _death(randomness), "relay"))
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_votes_and_dies(randomness: Random) -> Scenario:
    """A relay votes for an epoch, dies, and is there again before the epoch begins."""
    faults = (
        InjectedFault(_working(randomness), Kill(randomness.choice((0.0, 2.0))), "sequencer"),
        InjectedFault(
            AtStep("M10b", behind=True, occurrence=randomness.randint(1, 3)),
            Slow("others", 0.6, latency_s=0.2) if randomness.random() < 0.3 else Kill(0.0),
        ),
        InjectedFault(AtTime(0.0, behind=True), Kill(0.0)),
    )
    return Scenario(faults, _options(randomness), _load(randomness))


def relay_sequencer_restarts_empty(randomness: Random) -> Scenario:
    """The sequencer is there again at once, and knows nothing: the others hear it all the time."""
    faults = [InjectedFault(_working(randomness), Kill(0.0), "sequencer")]
    for _ in range(randomness.choice((0, 1, 2))):
        kill = InjectedFault(_after(randomness, 0.3, 1.5), Kill(0.0), "sequencer")
        faults.append(kill)
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_two_restart(randomness: Random) -> Scenario:
    """Two of three are lost at once, or all: a timeline begins with the best history that is left,
    or with none, and readers are told; one dies or is cut off at a step of that."""
    count = randomness.choice((2, 2, 3))
    names = randomness.sample(["broker-1", "broker-2", "broker-3"], count)
    kill = Kill(some_seconds(randomness, 0.0, 1.0))
    faults = [InjectedFault(_working(randomness), kill, names[0])]
    faults += [InjectedFault(_after(randomness, 0.0, 0.05), kill, one) for one in names[1:]]
    if randomness.random() < 0.6:
        step = AtStep(
            randomness.choice(_OF_A_FOUNDING), behind=True, occurrence=randomness.randint(1, 9)
        )
        cut = Cut("others", some_seconds(randomness, 0.5, 3.0))
        faults.append(InjectedFault(step, randomness.choice((_death(randomness), cut))))
    options = _options(randomness, brokers=3, faults_s=FORMED_S + 8.0)
    return Scenario(tuple(faults), options, _load(randomness))


def relay_is_away_while_two_restart(randomness: Random) -> Scenario:
    """One is cut off, or sleeps, while the other two restart; it comes back before or after they
    may begin a timeline without it."""
    names = randomness.sample(["broker-1", "broker-2", "broker-3"], 3)
    away_s = randomness.choice((_LOST_S - 1.0, _LOST_S + 1.0, _LOST_S + 3.0))
    away = randomness.choice((Cut("others", away_s), Cut("broker", away_s), Pause(away_s)))
    lost = randomness.choice((1, 2, 2))
    faults = [InjectedFault(_working(randomness), away, names[0])]
    faults += [
        InjectedFault(_after(randomness, 0.1, 0.8), Kill(some_seconds(randomness, 0.0, 1.0)), one)
        for one in names[1 : 1 + lost]
    ]
    if randomness.random() < 0.5:
        step = AtStep("M14", behind=True, occurrence=randomness.randint(1, 2))
        faults.append(InjectedFault(step, _death(randomness)))
    options = _options(randomness, brokers=3, faults_s=FORMED_S + 18.0)
    return Scenario(tuple(faults), options, _load(randomness, records=80, pause_s=0.2))


def relay_messages_get_lost(randomness: Random) -> Scenario:
    """Connections between relays break again and again at the steps of messages, so single messages
    are lost."""
    faults = [
        InjectedFault(
            AtStep(
                randomness.choice(("M3b", "M5b", "M3a", "M5a", "M2b", "M4b")),
                occurrence=randomness.choice((10, 20, 40)),
                behind=bool(number),
            ),
            Reset(randomness.choice(("broker", "relay", "sequencer")), "relay"),
        )
        for number in range(randomness.choice((2, 4, 6)))
    ]
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_buffer_overruns(randomness: Random) -> Scenario:
    """Buffers are small, and a relay or the quorum is slow, or away."""
    away = randomness.choice(
        (Pause(some_seconds(randomness, 0.3, 3.0)), Cut("others", 2.0), Slow("others", 2.0, 0.4))
    )
    target = randomness.choice(("relay", "relay", "sequencer"))
    faults = [InjectedFault(_working(randomness), away, target)]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(_after(randomness, 0.0, 2.5), _death(randomness), "relay"))
    load = _load(randomness, relay_buffer_count=randomness.choice((3, 8, 20)), pause_s=0.02)
    return Scenario(tuple(faults), _options(randomness), load)


def relay_clocks_jump(randomness: Random) -> Scenario:
    """Clocks are set back or forward, and a relay restarts within a millisecond."""
    jump = JumpClock(randomness.choice((-3600.0, 3600.0, -0.5)))
    faults = [InjectedFault(_working(randomness), jump, randomness.choice(("sequencer", "relay")))]
    faults.append(InjectedFault(_after(randomness, 0.0, 0.3), Kill(0.0), "sequencer"))
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_set_changes(randomness: Random) -> Scenario:
    """Members are added and removed under load; one dies at a step of that, or is cut off."""
    faults = []
    for number in range(randomness.choice((1, 1, 2, 3))):
        step = AtStep(
            randomness.choice(_OF_A_CHANGE),
            randomness.choice(("any", "any", "sequencer", "relay")),
            # The first ones are those of the beginning.
            occurrence=randomness.randint(1, 20) + (0 if number else 6),
            behind=bool(number),
        )
        cut = Cut("others", some_seconds(randomness, 0.5, 3.0))
        action = randomness.choice((_death(randomness), _death(randomness), cut, Pause(1.0)))
        faults.append(InjectedFault(step, action))
    chores = randomness.choices(("relays", "relays", "drain"), k=randomness.randint(2, 4))
    options = _options(randomness, brokers=randomness.choice((4, 4, 5)))
    return Scenario(tuple(faults), options, _load(randomness, chores=tuple(chores), records=80))


def relay_register_is_away(randomness: Random) -> Scenario:
    """The register is away, or comes back without its disk, while relays die and choose other
    sequencers."""
    away: Action = Kill(some_seconds(randomness, 2.0, 5.0))
    if randomness.random() < 0.4:
        away = Wipe(some_seconds(randomness, 0.5, 2.0))
    faults = [InjectedFault(_working(randomness), away, "register")]
    faults += [
        InjectedFault(_after(randomness, 0.2, 1.5), _death(randomness), "sequencer")
        for _ in range(randomness.choice((1, 1, 2)))
    ]
    load = _load(randomness, chores=randomness.choice(((), ("relays",), ("drain",))))
    return Scenario(tuple(faults), _options(randomness), load)


def relay_disk_is_lost(randomness: Random) -> Scenario:
    """A broker loses its disk, and is another broker from then on: another one takes its place in
    the relay sets."""
    faults = [
        InjectedFault(_working(randomness), Wipe(0.3), randomness.choice(("sequencer", "relay")))
    ]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(_after(randomness, 0.3, 2.5), _death(randomness), "relay"))
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


def relay_beats_are_late(randomness: Random) -> Scenario:
    """Everything is late by some beats, or by more than the silence after which a relay counts as
    dead; connections are held, and go on."""
    late_s = randomness.choice((0.1, 0.2, 0.35, 0.6))
    slow = Slow(randomness.choice(("others", "broker")), 3.0, latency_s=late_s)
    hold = Cut("others", some_seconds(randomness, 0.3, 1.2), holds=True)
    faults = [
        InjectedFault(
            _working(randomness),
            randomness.choice((slow, slow, hold)),
            randomness.choice(("sequencer", "relay")),
        )
    ]
    if randomness.random() < 0.4:
        faults.append(InjectedFault(_after(randomness, 0.0, 2.0), _death(randomness), "sequencer"))
    return Scenario(tuple(faults), _options(randomness), _load(randomness))


RELAY_SCENARIOS: Final[tuple[Callable[[Random], Scenario], ...]] = (
    relay_dies_at_a_step,
    relay_dies_at_a_step,
    relay_sequencer_dies,
    relay_sequencer_dies,
    relay_link_is_cut,
    relay_sequencer_is_isolated,
    relay_votes_and_dies,
    relay_sequencer_restarts_empty,
    relay_two_restart,
    relay_two_restart,
    relay_is_away_while_two_restart,
    relay_messages_get_lost,
    relay_buffer_overruns,
    relay_clocks_jump,
    relay_set_changes,
    relay_set_changes,
    relay_register_is_away,
    relay_disk_is_lost,
    relay_beats_are_late,
)
"""All of them; they are drawn by `sim.generate.relays` only."""
