"""The ways in which replicated logs are known to fail, as faults that belong together.

A follower is away, then the leader dies; a leader sleeps through its successor's election; who
recovers is struck again.  Each fault stands at a step of the protocol, or counts from the fault
before it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from itertools import chain
from math import inf
from random import Random
from typing import Any, Final, get_args

import attrs

from octopi.simulation.damage import Damage, Harm, Part
from octopi.simulation.disk_faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.failures import (
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    Fault,
    FillDisk,
    Kill,
    LosePower,
    Pause,
    Reset,
    RollBack,
    Rot,
    Slow,
    Stop,
    Wipe,
)
from sim.drawing import (
    EDGES,
    a_death,
    a_failing_disk,
    an_absence,
    at_once,
    late,
    shortly,
    some_restart_s,
    some_seconds,
    some_trouble,
    soon,
    when_producing,
)
from sim.kinds import (
    ALONE,
    DAMAGE,
    FULL,
    GONE,
    JOURNAL,
    LINKS,
    POWER,
    RENEWED,
    STOPS,
    is_drawn,
)
from sim.stories_of_keeping import (
    large_log,
    many_fetches,
    many_large_logs,
    retention_strikes,
)
from sim.stories_of_last_copies import TOLD_OF_LAST_COPIES
from sim.stories_of_loss import TOLD_OF_LOSS
from sim.stories_of_serving import ALWAYS_TOLD_OF_SERVING, TOLD_OF_SERVING
from sim.story import Story

_REGISTER: Final = ("E2", "E3b", "E7", "E8a", "E8b", "E9a", "E17a", "E17b", "J5a", "R2b", "R3a")
_BROKERS: Final = ("broker-1", "broker-2", "broker-3")
_QUICK: Final = {"latency_s": 0.0005, "jitter_s": 0.0005}
_PIPELINED: Final = {"batch_bytes": 1}
"""Each message is a batch, and several are under way."""


def _one_dies(chance: Random) -> Story:
    who = chance.choice(("here", "leader", "follower"))
    return Story((Fault(when_producing(chance), a_death(chance), who),))


def _one_after_the_other(chance: Random) -> Story:
    """Who recovers, or helps to, is struck again."""
    second = chance.choice(("here", "here", "leader", "follower", "register"))
    return Story(
        (
            Fault(when_producing(chance), a_death(chance), chance.choice(("leader", "follower"))),
            Fault(soon(chance), a_death(chance), second),
        )
    )


def _leaders_die(chance: Random) -> Story:
    """One leader after the other: logs part, and meet again."""
    steps = ("P2b", "P2d", "P3b", "P5a", "P6b", "P7a", "P7b")
    place = AtStep(chance.choice((*steps, "E11", "E15")), "leader", chance.randint(1, 3), True)
    first = AtStep(chance.choice(steps), occurrence=chance.randint(1, 20))
    again = [Fault(place, a_death(chance), "leader") for _ in range(chance.randint(1, 2))]
    return Story((Fault(first, a_death(chance), "leader"), *again))


def _left_alone(chance: Random) -> Story:
    """A follower is away, the leader goes on without it and dies; the other comes back."""
    place = chance.choice((late, soon))
    replicas = chance.choice((2, 3))
    return Story(
        (
            Fault(when_producing(chance), an_absence(chance), "follower"),
            Fault(place(chance), chance.choice((a_death, an_absence))(chance), "leader"),
        ),
        {"replicas": replicas},
    )


def _all_alone(chance: Random) -> Story:
    """All followers are away, and then the leader is."""
    away = an_absence(chance)
    return Story(
        (
            Fault(when_producing(chance), away, "follower"),
            Fault(AtTime(0.0, True), chance.choice((away, Pause(2.5), Kill(2.5))), "follower"),
            Fault(late(chance), chance.choice((a_death, an_absence))(chance), "leader"),
        )
    )


def _last_one(chance: Random) -> Story:
    """One broker is slow; then all others die, and what it has is all that there is."""
    survivor, *others = chance.sample(_BROKERS, len(_BROKERS))
    weakness = chance.choice(
        (
            Slow("others", 3.0, latency_s=some_seconds(chance, 0.05, 0.6)),
            Cut("others", some_seconds(chance, 0.1, 0.9), "in", holds=True),
            Cut("others", some_seconds(chance, 0.1, 0.9), "both", holds=True),
            Pause(some_seconds(chance, 0.1, 0.9)),
            BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.05, 0.9)), times=20)),
            Kill(some_seconds(chance, 0.0, 0.8)),
            LosePower(some_seconds(chance, 0.0, 0.8)),
            Reset("others"),
        )
    )
    deaths = [
        chance.choice((Kill, LosePower))(chance.choice((some_seconds(chance, 1.5, 3.0), None)))
        for _ in others
    ]
    behind = chance.choice((at_once, shortly, soon))
    return Story(
        (
            Fault(when_producing(chance), weakness, survivor),
            Fault(behind(chance), deaths[0], others[0]),
            *(Fault(AtTime(0.0, True), *one) for one in zip(deaths[1:], others[1:], strict=True)),
        )
    )


def _left_behind(chance: Random) -> Story:
    """A slow follower is left behind, the leader dies as soon as it commits without it, and the
    next one doesn't hear for a while what the others have."""
    commit = AtStep(chance.choice(("P6b", "P7a", "P7b")), "any", chance.choice((1, 2)), True)
    gone = AtStep(chance.choice(("E11", "E12", "J7")), behind=True)
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.1, 0.15)), times=40))
    first = AtStep("P2b", occurrence=chance.choice((1, 2, 3, 5)))
    return Story(
        (
            Fault(first, Cut("leader", 3.0), "follower"),
            Fault(AtTime(0.0, behind=True), slow),
            Fault(commit, Kill(3.0), "leader"),
            Fault(gone, chance.choice((Pause(0.9), Pause(0.9), Pause(0.9), Kill(2.0))), "follower"),
            *((Fault(soon(chance), Kill(None), "leader"),) if chance.random() < 0.3 else ()),
        ),
        {"brokers": 4, "replicas": 4, "min_insync": 1, "latency_s": 0.02, "jitter_s": 0.005},
    )


def _candidates_die(chance: Random) -> Story:
    """Who is to lead next, or to vote for it, loses its power in the midst of the change."""
    before = ("E4", "E6a", "E9a", "E11", "E12", "J10")
    behind = ("D2b", "E6b", "E7", "E8b", "E10b", "J7")  # who accepted has flushed
    step = chance.choice(chance.choice((before, behind, behind)))
    place = AtStep(step, occurrence=chance.choice((1, 1, 2)), behind=True)
    first = chance.choice((Kill, Kill, LosePower, Stop))(some_restart_s(chance))
    target = chance.choice(("here", "leader", "follower"))
    return Story(
        (
            Fault(when_producing(chance), first, "leader"),
            Fault(place, LosePower(chance.choice((0.0, 0.1, 0.5))), target),
            *((Fault(soon(chance), a_death(chance), "leader"),) if chance.random() < 0.3 else ()),
        ),
        {
            "replicas": chance.choice((2, 3)),
            "min_insync": 1,
            "flush_before_ack": False,
            "flush_interval_s": 2.5,
        },
    )


def _joiner_dies(chance: Random) -> Story:
    """A follower dies while it is let back into the in-sync set, maybe slowly."""
    steps = ("J11", "J11", "J11", "E16b", "E17a", "E17b", "J12")
    death = chance.choice((Kill, LosePower, LosePower, LosePower))(chance.choice((0.0, 0.0, 0.1)))
    slow = Slow("register", 2.0, latency_s=some_seconds(chance, 0.3, 0.7))
    faults = [
        Fault(when_producing(chance), Kill(some_seconds(chance, 0.1, 0.4)), "follower"),
        Fault(AtStep(chance.choice(steps), behind=True), death, "follower"),
    ]
    if chance.random() < 0.7:
        faults.insert(1, Fault(AtStep("J9b", behind=True), slow, "leader"))
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    options = {"replicas": chance.choice((2, 2, 3)), "min_insync": 1, "flush_before_ack": False}
    return Story(tuple(faults), {**options, "flush_interval_s": 1.0, **_QUICK})


def _back_with_less(chance: Random) -> Story:
    """A follower loses what was in its memory, and the leader is gone before it can say so."""
    loss = chance.choice((LosePower, LosePower, Wipe))(chance.choice((0.0, 0.1, 0.3)))
    step = chance.choice(("J1b", "J2", "J4b", "J5a", "J5b", "J7", "J8a", "J8b"))
    death = chance.choice((Kill, Kill, Pause))(some_seconds(chance, 2.0, 4.0))
    faults = (
        Fault(AtStep("P4b", "follower", chance.choice((2, 3, 5, 8))), loss),
        Fault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Story(faults, {**options, "flush_interval_s": 2.5, **_QUICK})


def _back_with_rot(chance: Random) -> Story:
    """A bit turns over in what a follower has, and its leader is gone before the two compare."""
    step = chance.choice(("J1b", "J2", "J4b", "J5a", "J5b"))
    death = chance.choice((Kill, Kill, Pause))(some_seconds(chance, 2.0, 4.0))
    faults = (
        Fault(AtStep("P4b", "follower", chance.choice((5, 8, 12))), Rot(0.0)),
        Fault(AtStep(step, behind=True), death, "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, "flush_before_ack": True}
    load = {"topic_partitions": 1, "value_bytes_max": 40}  # for it to lie behind the checkpoint
    return Story(faults, {**options, **_QUICK}, load)


def _cut_and_leads_again(chance: Random) -> Story:
    """A leader appends what nobody hears of, comes back, and leads again before producers found
    the one in between."""
    unheard = AtStep("P2a", "leader", chance.choice((2, 3, 5, 8)))
    faults = (
        Fault(unheard, Cut("others", some_seconds(chance, 1.2, 2.0), "both", resets=True)),
        Fault(AtStep("E11", behind=True), Cut("client", 4.0)),
        Fault(AtStep("J12", behind=True), Kill(4.0), "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, **_QUICK}
    load = {"delivery_timeout_s": 30.0, "topic_partitions": 1, "reopen_count": 0}
    return Story(faults, options, load)


def _memory_is_lost(chance: Random) -> Story:
    """The register forgets that a follower was left behind, and who knows it is gone, too."""
    forgets = chance.choice((Wipe, LosePower, LosePower))(chance.choice((0.0, 0.1, 0.3)))
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.2, 0.6)), times=9))
    alone = AtStep("P7b", "leader", chance.choice((1, 1, 2, 4)), behind=True)
    death = chance.choice((Kill, LosePower))(some_seconds(chance, 4.0, 5.0))
    faults = [
        Fault(when_producing(chance), Kill(some_seconds(chance, 1.5, 2.5)), "follower"),
        Fault(AtStep("E16b", behind=True), slow, "register"),
        Fault(AtStep("E17b", behind=True), Pause(0.0), "register"),  # others count from here
        Fault(alone, death, "leader"),
        Fault(AtTime(0.0, behind=True), forgets, "register"),
    ]
    if chance.random() < 0.5:
        del faults[1]
    options = {"replicas": 2, "min_insync": 1, "partitions": 1}
    return Story(tuple(faults), options, {"topic_partitions": 1, "records": 40})


def _told_too_soon(chance: Random) -> Story:
    """What a leader has nobody else hears of, not even when its producers send it again; then
    it is gone."""
    step = AtStep(chance.choice(("P1", "P2a", "P2b")), "leader", chance.choice((1, 2, 5, 12)))
    cut = Cut("broker", 4.0, chance.choice(("both", "out")))
    faults = [
        Fault(step, cut, "leader"),
        Fault(AtTime(some_seconds(chance, 0.0, 0.3), behind=True), Reset("client"), "leader"),
        Fault(AtTime(some_seconds(chance, 0.1, 0.5), behind=True), Kill(4.0), "leader"),
    ]
    if chance.random() < 0.3:
        del faults[1]
    options = {"min_insync": 1, "partitions": 1, **_QUICK}
    return Story(tuple(faults), options, {"topic_partitions": 1, "burst_count": 4})


def _leads_at_once(chance: Random) -> Story:
    """A leader loses what was in its memory and is back before anybody finds out."""
    busy = chance.choice(
        (Pause(0.9), Slow("others", 2.0, latency_s=some_seconds(chance, 0.2, 0.8)))
    )
    faults = [
        Fault(AtStep("P6b", "leader", chance.choice((2, 3, 5, 8))), busy, "register"),
        Fault(AtTime(0.0, behind=True), LosePower(0.0), "leader"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "follower"))
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": False}
    return Story(tuple(faults), {**options, "flush_interval_s": 2.5, **_QUICK})


def _older_copy(chance: Random) -> Story:
    """A follower's machine is set up again from a copy that it went on from, and starts so
    often that its life could be the next one; then its leader is gone."""
    taken_s = chance.choice((0.3, 0.5))
    faults = (
        Fault(AtTime(taken_s + 0.1), Kill(0.0), "follower/0"),
        Fault(AtTime(some_seconds(chance, 1.0, 1.6), behind=True), RollBack(taken_s, 0.0)),
        Fault(AtStep("J1b", behind=True), Kill(0.0)),
        Fault(AtStep(chance.choice(("J1b", "J2", "J5b")), behind=True), Kill(3.0), "leader/0"),
    )
    options = {"replicas": 2, "min_insync": 1, "flush_before_ack": True, **_QUICK}
    return Story(faults, options, {"producers": 1, "records": 60})


def _too_few(chance: Random) -> Story:
    """Nothing can be taken until who died is back, and as much as before."""
    place = when_producing(chance)
    slow = Slow("others", 2.0, latency_s=some_seconds(chance, 0.05, 0.3))
    return Story(
        (
            Fault(place, LosePower(some_seconds(chance, 0.0, 0.5)), "follower"),
            Fault(AtStep(chance.choice(("J2", "J5b", "J7")), behind=True), slow),
            Fault(soon(chance), a_death(chance), "leader"),
        )[: chance.randint(1, 3)],
        {"replicas": 2, "min_insync": 2, "flush_before_ack": False, "flush_interval_s": 1.0},
    )


def _refused_for_long(chance: Random) -> Story:
    """Nothing can be taken for longer than producers try."""
    gone = chance.choice((Kill, LosePower, Stop))(some_seconds(chance, 2.5, 4.0))
    faults = [Fault(when_producing(chance), gone, "follower")]
    if chance.random() < 0.5:
        faults.append(Fault(late(chance), chance.choice((Reset("client"), Pause(0.3))), "leader"))
    options = {"replicas": 2, "min_insync": 2, "flush_before_ack": True}
    load = {"delivery_timeout_s": 0.5, "burst_count": 4, "reopen_count": 0, "records": 40}
    return Story(tuple(faults), options, {**load, **_PIPELINED})


def _sleeper(chance: Random) -> Story:
    """A leader sleeps, or is cut off, while another one is chosen; then it wakes up."""
    sleep = chance.choice((Pause(some_seconds(chance, 1.2, 3.0)), an_absence(chance)))
    return Story(
        (
            Fault(when_producing(chance), sleep, "leader"),
            *((Fault(soon(chance), a_death(chance), "leader"),) if chance.random() < 0.6 else ()),
        )
    )


def _power_fails(chance: Random) -> Story:
    """All machines of a room, at about the same time."""
    count = chance.choice((2, 3, 3))
    deaths = [
        chance.choice((LosePower, LosePower, Kill))(some_restart_s(chance)) for _ in range(count)
    ]
    gap_s = chance.choice((0.0, 0.0, 0.01, 0.3))
    targets = chance.sample(_BROKERS, count)
    faults = [Fault(when_producing(chance), deaths[0], targets[0])]
    for death, target in zip(deaths[1:], targets[1:], strict=True):
        faults.append(Fault(AtTime(gap_s, True), death, target))
    return Story(tuple(faults), {"flush_before_ack": True} if chance.random() < 0.7 else {})


def _one_replica(chance: Random) -> Story:
    """There is nobody else who has it."""
    faults = [Fault(when_producing(chance), a_death(chance), "leader/0")]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), "leader/0"))
    return Story(tuple(faults), {"replicas": 1, "min_insync": 1, "flush_before_ack": True})


def _register_fails(chance: Random) -> Story:
    """The register is slow, or dies, in the midst of what it decides."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.02, 0.5)), times=9))
    death = chance.choice((Kill, LosePower, LosePower, Wipe))(chance.choice((0.0, 0.1, 0.6, 2.5)))
    step = AtStep(chance.choice(_REGISTER), occurrence=chance.choice((1, 1, 2, 3)), behind=True)
    who = chance.choice(("leader", "follower"))
    faults = [Fault(when_producing(chance), chance.choice((a_death, an_absence))(chance), who)]
    if chance.random() < 0.5:
        faults.insert(0, Fault(AtTime(0.3), slow, "register"))
    if chance.random() < 0.7:
        faults.append(Fault(step, death, "register"))
    if chance.random() < 0.6:
        target = chance.choice(("here", "leader", "leader/0", "follower"))
        faults.append(Fault(soon(chance), a_death(chance), target))
    return Story(tuple(faults))


def _spent_epoch(chance: Random) -> Story:
    """The register loses its disk when an epoch was promised that nothing came of yet."""
    step = chance.choice(("E3b", "E4", "E5", "E6b", "E7", "E8a", "E8b", "E9a"))
    loss = Wipe(chance.choice((0.0, 0.1, 0.6)))
    faults = [
        Fault(when_producing(chance), a_death(chance), "leader"),
        Fault(AtStep(step, behind=True), loss, "register"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    return Story(tuple(faults))


def _slow_to_remember(chance: Random) -> Story:
    """A leader takes its time to store who is in sync, and goes on replicating meanwhile."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.2, 0.5)), times=20))
    gone = chance.choice((Kill, Stop))(some_seconds(chance, 0.0, 0.4))
    faults = [
        Fault(when_producing(chance), slow, "leader"),
        Fault(at_once(chance), gone, "follower"),
    ]
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    options = {"replicas": 3, "min_insync": 1, "flush_before_ack": False}
    return Story(tuple(faults), options, {"pause_s": 0.02, "records": 40})


def _answers_get_lost(chance: Random) -> Story:
    """Producers don't hear what became of their batches, and send them again."""
    step = chance.choice(("C1b", "P1", "P2b", "P5a", "P6b", "P7a", "P7b"))
    place = AtStep(step, occurrence=chance.randint(2, 40))
    cut = Cut(
        "client", some_seconds(chance, 0.05, 2.0), chance.choice(("both", "out")), resets=True
    )
    loss = chance.choice((Reset("client"), cut, a_death(chance), Pause(1.5)))
    faults = [Fault(place, loss, "leader")]
    for _ in range(chance.randint(0, 2)):
        again = AtStep(chance.choice(("C2b", "P1", "P2b", "P7a", "E11", "C6")), behind=True)
        strike = chance.choice((Reset("client"), Reset("client"), a_death(chance)))
        faults.append(Fault(again, strike, "leader/0"))
    return Story(tuple(faults), load={"burst_count": chance.choice((4, 12)), **_PIPELINED})


def _full_for_a_moment(chance: Random) -> Story:
    """A disk doesn't take a batch, and takes what comes right behind it."""
    full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.0, 0.5, 0.9)))
    moment = BreakDisk(DiskFault("append", full, ".log"))
    load = {"burst_count": 12, "producers": 1, "topic_partitions": 1, **_PIPELINED}
    options: dict[str, Any] = {"partitions": 1, "min_insync": 1}
    if chance.random() < 0.5:
        # A new epoch is stored first, and what is sent meanwhile piles up behind that.
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.1, 0.3)), times=9))
        faults = [
            Fault(AtStep("P2a", "leader"), slow, "follower"),
            Fault(AtStep("P3a", "follower", chance.choice((1, 1, 2))), moment),
        ]
        options.update(replicas=2, latency_s=0.001, jitter_s=0.02)
        load["producers"] = 3
    else:
        faults = [Fault(AtStep("P2a", "leader", chance.choice((1, 1, 1, 2, 3))), moment)]
        options["replicas"] = chance.choice((1, 1, 3))  # who leads alone goes on leading
    if chance.random() < 0.3:
        faults.append(Fault(shortly(chance), a_death(chance), chance.choice(("leader", "here"))))
    return Story(tuple(faults), options, load)


def _ghost(chance: Random) -> Story:
    """A follower comes back with less than it acknowledged last, slowly, and maybe before the
    last that it said has arrived."""
    records = chance.choice((3, 5, 8))
    said = AtStep("P3b", "follower", records - chance.choice((0, 0, 1)))
    delayed = Slow("leader", 0.3, latency_s=some_seconds(chance, 0.5, 0.9))
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.2, 0.6)), times=20))
    stalled = Cut("leader", some_seconds(chance, 0.7, 1.2), "in", holds=True)
    faults = (
        Fault(said, delayed if chance.random() < 0.6 else Reset("client")),
        Fault(AtStep("P4b", "follower", 1, behind=True), LosePower(0.0)),
        Fault(AtStep("J8b", behind=True), chance.choice((slow, stalled))),
        Fault(AtTime(4.0), Reset("client"), "leader"),  # so long nothing is healed
    )
    options = {"partitions": 1, "replicas": 2, "min_insync": 1, "flush_before_ack": False}
    load = {"producers": 1, "records": records, "burst_count": 1, "topic_partitions": 1}
    return Story(faults, {**options, "flush_interval_s": 2.5, **_QUICK}, load)


def _disk_fails(chance: Random) -> Story:
    begins = AtStep(chance.choice(("J10", "E11", "D3a")), occurrence=chance.randint(1, 3))
    place = chance.choice((begins, when_producing(chance)))
    who = chance.choice(("leader", "follower", "follower"))
    faults = [Fault(place, a_failing_disk(chance), who)]
    if chance.random() < 0.3:
        faults.insert(0, Fault(when_producing(chance), Kill(some_restart_s(chance)), "leader"))
        faults[1] = Fault(attrs.evolve(begins, behind=True), a_failing_disk(chance), who)
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("here", "leader"))))
    return Story(tuple(faults))


def _flush_fails(chance: Random) -> Story:
    """The device refuses what an acknowledgement waits for."""
    place = AtStep("D1a", chance.choice(("leader", "follower")), chance.choice((1, 2, 3, 5)))
    faults = [Fault(place, BreakDisk(DiskFault("sync", Fail(errno.EIO), ".log")))]
    if chance.random() < 0.5:
        faults.append(Fault(shortly(chance), LosePower(0.1), chance.choice(("here", "leader"))))
    return Story(tuple(faults), {"flush_before_ack": True})


def _torn_writes(chance: Random) -> Story:
    """A machine loses its power while it writes."""
    operation, edge = chance.choice(EDGES[:6])
    who = chance.choice(("leader", "follower", "register"))
    slow = DiskFault("sync", Delay(some_seconds(chance, 0.02, 0.3)), times=20)
    torn = DiskFault("append", Tear(), calls_before=chance.randrange(9))
    place = AtEffect(operation, edge, who, chance.randint(1, 25))
    return Story(
        (
            Fault(
                AtTime(some_seconds(chance, 0.0, 0.3)), BreakDisk(chance.choice((slow, torn))), who
            ),
            Fault(place, LosePower(some_restart_s(chance))),
            *((Fault(soon(chance), a_death(chance), "leader"),) if chance.random() < 0.4 else ()),
        )
    )


def _disk_is_lost(chance: Random) -> Story:
    loss = chance.choice((Wipe, Rot))(chance.choice((0.0, 0.2, 1.5)))
    second = chance.choice(("leader", "follower", "register"))
    return Story(
        (
            Fault(when_producing(chance), loss, chance.choice(("leader", "follower"))),
            Fault(soon(chance), a_death(chance), second),
        )
    )


def _unsteady(chance: Random) -> Story:
    """Connections and disks have their moods, and somebody dies."""
    faults = [Fault(when_producing(chance), some_trouble(chance))]
    for _ in range(chance.randint(1, 2)):
        what = chance.choice((some_trouble, some_trouble, a_death))
        target = chance.choice(("here", "leader", "follower"))
        faults.append(Fault(soon(chance), what(chance), target))
    return Story(tuple(faults))


def _damaged_comes_first(chance: Random) -> Story:
    """All end, and the one that comes back first lacks some of what it had."""
    damaged, *others = chance.sample(_BROKERS, len(_BROKERS))
    parts: tuple[Part, ...] = ("log", "log", "log", "checkpoint", "directory", "ends")
    harms: tuple[Harm, ...] = ("cut", "missing")
    part, harm = chance.choice(parts), chance.choice(harms)
    back_s = chance.choice((some_seconds(chance, 0.3, 0.9), some_seconds(chance, 1.5, 3.0)))
    end = chance.choice((Kill, Kill, Stop))
    flushed = AtStep("D1b", damaged, chance.choice((2, 3, 4, 6)))
    return Story(
        (
            Fault(flushed, Damage(harm, part, chance.choice((0.0, 0.2))), damaged),
            *(Fault(AtTime(0.0, behind=True), end(back_s), one) for one in others),
        ),
        {
            "flush_interval_s": 0.05,
            "faults_s": 8.0,
            "checkpoint_bytes": chance.choice((2000, 1_000_000)),
        },
        {"pause_s": 0.03, "records": 40},
    )


def _damaged_leads(chance: Random) -> Story:
    """A node comes back damaged, and the leader is gone before the two compare."""
    harm: Harm = chance.choice(get_args(Harm))
    part: Part = chance.choice(get_args(Part))
    damage = Damage(harm, part, chance.choice((0.0, 0.1, 0.4)), 0.4)
    step = chance.choice(("J1b", "J2", "J3", "J4b", "J5a", "J5b", "J6", "J7", "J9b"))
    who = chance.choice(("leader", "follower", "follower"))
    place = AtStep("D1b", who, chance.choice((2, 3, 5, 8)))
    faults = [
        Fault(place, damage, "register" if part == "journal" else "here"),
        Fault(AtStep(step, behind=True), a_death(chance), "leader"),
    ]
    if chance.random() < 0.4:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("here", "leader"))))
    options: dict[str, Any] = {"flush_interval_s": 0.05, "replicas": chance.choice((2, 3))}
    options["checkpoint_bytes"] = chance.choice((2000, 1_000_000))
    return Story(tuple(faults), options, {"pause_s": 0.03, "records": 40})


def _stopped(chance: Random) -> Story:
    """Nodes are asked to end, and what takes over from them is struck."""
    first = Fault(when_producing(chance), Stop(some_restart_s(chance)), "leader")
    second = chance.choice(
        (
            Fault(
                AtStep(chance.choice(("E1", "E2", "E5", "E8a", "E19a", "E16a")), behind=True),
                chance.choice((Stop, Kill))(some_restart_s(chance)),
                "register",
            ),
            Fault(soon(chance), chance.choice((Kill, LosePower))(some_restart_s(chance)), "here"),
            Fault(soon(chance), Stop(some_restart_s(chance)), "here"),
            Fault(soon(chance), Stop(some_restart_s(chance)), "leader"),
            Fault(soon(chance), Slow("others", 2.0, some_seconds(chance, 0.05, 0.5)), "here"),
        )
    )
    faults = [first, second]
    if chance.random() < 0.4:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.1, 1.5)), times=20))
        faults.insert(0, Fault(AtTime(some_seconds(chance, 0.0, 0.6)), slow, "leader"))
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), Stop(some_restart_s(chance)), "follower"))
    return Story(tuple(faults), {"min_insync": chance.choice((1, 1, 2))})


def _gone_for_good(chance: Random) -> Story:
    """A broker ends, maybe slowly, and never comes back."""
    ends = chance.choice((Stop, Stop, Stop, Kill, LosePower))(inf)
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(chance, 0.1, 1.5)), times=20))
    who = chance.choice(("leader", "leader", "follower"))
    faults = [Fault(when_producing(chance), ends, who)]
    if chance.random() < 0.5:
        faults.insert(0, Fault(AtTime(some_seconds(chance, 0.0, 0.6)), slow, "leader"))
    if chance.random() < 0.3:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "register"))))
    return Story(tuple(faults), {"replicas": 3, "min_insync": chance.choice((1, 1, 2))})


def _one_link_breaks(chance: Random) -> Story:
    """A single connection breaks, once or more often."""
    faults = [
        Fault(
            when_producing(chance) if not number else soon(chance),
            Reset(
                chance.choice(("others", "register", "leader", "follower")),
                chance.choice(("membership", "membership", "follow", "follow", "client")),
            ),
            chance.choice(("leader", "leader", "follower")),
        )
        for number in range(chance.randint(1, 4))
    ]
    if chance.random() < 0.4:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    return Story(tuple(faults))


def _forgets_with_a_full_disk(chance: Random) -> Story:
    """A broker comes back with what it heard long ago to a register that has to find everything
    out again, and whose disk doesn't take every entry."""
    full = Fail(errno.ENOSPC, written_fraction=chance.choice((0.0, 0.5)))
    operation = chance.choice(("append", "append", "append", "sync", ""))
    how = full if operation != "sync" else Fail(errno.EIO)
    fault = DiskFault(
        operation, how, ".log", chance.randrange(6), times=chance.choice((1, 1, 2, 4, 8))
    )
    step = chance.choice(("R1", "J3", "J4a", "J5a", "J5a", "R2a"))
    wiped_s, late_s = chance.choice((0.0, 0.1, 0.6)), some_seconds(chance, 1.2, 2.0)
    back_s = late_s + wiped_s + some_seconds(chance, -0.1, 1.5)
    faults = [
        Fault(when_producing(chance), chance.choice((Kill, Kill, Stop))(back_s), "follower"),
        Fault(AtTime(late_s, behind=True), Wipe(wiped_s), "register"),
        Fault(AtStep(step, behind=True), BreakDisk(fault), "register"),
    ]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "register"))))
    options = {"snapshot_entries": chance.choice((3, 100_000)), "replicas": chance.choice((2, 3))}
    return Story(tuple(faults), {**options, "faults_s": 8.0}, {"pause_s": 0.05, "records": 80})


def _made_again(chance: Random) -> Story:
    """A broker is away while topics are deleted and made again under their names."""
    gone = chance.choice((Kill, Stop, LosePower))(some_seconds(chance, 0.3, 3.0))
    step = chance.choice(("T3b", "T5a", "T5b", "T6a", "T6b", "T7a", "T7b", "T1b", "T2a"))
    faults = [
        Fault(
            AtStep(step, occurrence=chance.choice((1, 2, 3))),
            gone,
            chance.choice(("here", "follower", "leader")),
        )
    ]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), "leader"))
    return Story(tuple(faults), {"faults_s": 8.0}, {"chores": ("renew", "renew")})


def _made_again_and_forgotten(chance: Random) -> Story:
    """The same, and before it is back the register loses its disk."""
    away = chance.choice(_BROKERS)
    faults = (
        Fault(
            AtStep("T3b", away, chance.choice((2, 2, 3))),
            Kill(some_seconds(chance, 3.0, 5.0)),
            away,
        ),
        Fault(AtTime(some_seconds(chance, 1.2, 2.4), behind=True), Wipe(0.2), "register"),
        Fault(AtTime(3.0, behind=True), Reset("client"), "leader"),
    )
    options = {"faults_s": 12.0, "replicas": 3, "min_insync": 1, "partitions": 1}
    return Story(faults, options, {"chores": ("renew", "renew"), "topic_partitions": 1})


def _starts_with_a_full_disk(chance: Random) -> Story:
    """A node starts while its disk is full, or full for some of what it does."""
    times = chance.choice((1, 1, 2, 5, 20))
    full = DiskFault(
        chance.choice(("append", "append", "open", "make_directory")),
        Fail(errno.ENOSPC),
        calls_before=chance.choice((0, 0, 1, 2, 4, 8)),
        times=times,
    )
    seconds = some_seconds(chance, 0.3, 4.0)
    trouble = chance.choice((FillDisk(seconds), FillDisk(seconds), BreakDisk(full)))
    who = chance.choice(("leader", "follower", "follower", "register"))
    first = chance.choice((Kill, Kill, Stop))(chance.choice((0.1, 0.5, 1.5)))
    faults = [Fault(when_producing(chance), first, who), Fault(AtTime(0.0, True), trouble)]
    if chance.random() < 0.4:
        faults.append(Fault(late(chance), a_death(chance), "leader"))
    return Story(tuple(faults), {"faults_s": 8.0, "kills_each": chance.random() < 0.5})


def _all_lose_power(chance: Random) -> Story:
    """All machines lose their power, at once or one after the other within a moment."""
    gap_s = chance.choice((0.0, 0.0, 0.01, 0.1, 0.5))
    back = [chance.choice((0.0, 0.2, some_seconds(chance, 0.2, 2.0), None)) for _ in _BROKERS]
    order = chance.sample(_BROKERS, len(_BROKERS))
    faults = [Fault(when_producing(chance), LosePower(back[0]), order[0])]
    for target, back_s in zip(order[1:], back[1:], strict=True):
        faults.append(Fault(AtTime(gap_s, behind=True), LosePower(back_s), target))
    if chance.random() < 0.3:
        faults.append(Fault(AtTime(0.0, behind=True), LosePower(0.1), "register"))
    if chance.random() < 0.4:
        faults.append(Fault(soon(chance), a_death(chance), chance.choice(("leader", "register"))))
    options: dict[str, Any] = {"loses_all": True, "faults_s": 8.0}
    options["flush_before_ack"] = chance.random() < 0.3
    options["flush_interval_s"] = chance.choice((0.05, 0.3, 1.0))
    options["replicas"] = chance.choice((3, 3, 2, 1))
    if options["replicas"] == 1:
        options["min_insync"] = 1
    return Story(tuple(faults), options, {"value_bytes_max": chance.choice((0, 40, 400))})


_ALWAYS_TOLD: Final[tuple[Callable[[Random], Story], ...]] = (
    _one_dies,
    _one_after_the_other,
    _one_after_the_other,
    _leaders_die,
    _left_alone,
    _left_alone,
    _all_alone,
    _last_one,
    _last_one,
    _left_behind,
    _left_behind,
    _back_with_less,
    _back_with_rot,
    _cut_and_leads_again,
    _memory_is_lost,
    _told_too_soon,
    _leads_at_once,
    _older_copy,
    _too_few,
    _refused_for_long,
    _candidates_die,
    _candidates_die,
    _joiner_dies,
    _sleeper,
    _power_fails,
    _one_replica,
    _register_fails,
    _spent_epoch,
    _slow_to_remember,
    _slow_to_remember,
    _answers_get_lost,
    _answers_get_lost,
    _full_for_a_moment,
    _full_for_a_moment,
    _full_for_a_moment,
    _ghost,
    _ghost,
    _ghost,
    _disk_fails,
    _flush_fails,
    _torn_writes,
    _disk_is_lost,
    _unsteady,
    retention_strikes,
    retention_strikes,
    large_log,
    many_large_logs,
    *ALWAYS_TOLD_OF_SERVING,
    many_fetches,
)
"""One that stands here twice is drawn more often."""

TOLD_IF_DRAWN: Final[Mapping[str, tuple[Callable[[Random], Story], ...]]] = {
    DAMAGE: (
        *(_damaged_comes_first, _damaged_comes_first, _damaged_leads, _damaged_leads),
        *TOLD_OF_LOSS[DAMAGE],
    ),
    STOPS: (_stopped, _stopped, *TOLD_OF_SERVING[STOPS]),
    GONE: (_gone_for_good,),
    LINKS: (_one_link_breaks, _one_link_breaks),
    JOURNAL: (_forgets_with_a_full_disk, *TOLD_OF_LOSS[JOURNAL]),
    RENEWED: (_made_again, _made_again, _made_again_and_forgotten),
    FULL: (_starts_with_a_full_disk, *TOLD_OF_SERVING[FULL]),
    POWER: (_all_lose_power, _all_lose_power, *TOLD_OF_LOSS[POWER], *TOLD_OF_SERVING[POWER]),
    ALONE: TOLD_OF_SERVING[ALONE],
    **TOLD_OF_LAST_COPIES,
}
"""More, by the kind of `sim.kinds` that has to be drawn."""

STORIES: Final = (
    *_ALWAYS_TOLD,
    *chain.from_iterable(told for kind, told in TOLD_IF_DRAWN.items() if is_drawn(kind)),
)
"""All that are told."""
