"""Stories of leaders and followers that die, sleep, stop, or are cut off, and of who leads then."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

from octopi.simulation.disk_faults import Delay, DiskFault
from octopi.simulation.failures import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    Fault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Slow,
    Stop,
)
from sim.drawing import (
    BROKERS,
    QUICK,
    a_death,
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
from sim.story import Story

_PIPELINED: Final = {"batch_bytes": 1}
"""Each message is a batch, and several are under way."""


def one_dies(chance: Random) -> Story:
    who = chance.choice(("here", "leader", "follower"))
    return Story((Fault(when_producing(chance), a_death(chance), who),))


def one_after_the_other(chance: Random) -> Story:
    """Who recovers, or helps to, is struck again."""
    second = chance.choice(("here", "here", "leader", "follower", "register"))
    return Story(
        (
            Fault(when_producing(chance), a_death(chance), chance.choice(("leader", "follower"))),
            Fault(soon(chance), a_death(chance), second),
        )
    )


def leaders_die(chance: Random) -> Story:
    """One leader after the other: logs part, and meet again."""
    steps = ("P2b", "P2d", "P3b", "P5a", "P6b", "P7a", "P7b")
    place = AtStep(chance.choice((*steps, "E11", "E15")), "leader", chance.randint(1, 3), True)
    first = AtStep(chance.choice(steps), occurrence=chance.randint(1, 20))
    again = [Fault(place, a_death(chance), "leader") for _ in range(chance.randint(1, 2))]
    return Story((Fault(first, a_death(chance), "leader"), *again))


def left_alone(chance: Random) -> Story:
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


def all_alone(chance: Random) -> Story:
    """All followers are away, and then the leader is."""
    away = an_absence(chance)
    return Story(
        (
            Fault(when_producing(chance), away, "follower"),
            Fault(AtTime(0.0, True), chance.choice((away, Pause(2.5), Kill(2.5))), "follower"),
            Fault(late(chance), chance.choice((a_death, an_absence))(chance), "leader"),
        )
    )


def last_one(chance: Random) -> Story:
    """One broker is slow; then all others die, and what it has is all that there is."""
    survivor, *others = chance.sample(BROKERS, len(BROKERS))
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


def left_behind(chance: Random) -> Story:
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


def candidates_die(chance: Random) -> Story:
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


def joiner_dies(chance: Random) -> Story:
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
    return Story(tuple(faults), {**options, "flush_interval_s": 1.0, **QUICK})


def cut_and_leads_again(chance: Random) -> Story:
    """A leader appends what nobody hears of, comes back, and leads again before producers found
    the one in between."""
    unheard = AtStep("P2a", "leader", chance.choice((2, 3, 5, 8)))
    faults = (
        Fault(unheard, Cut("others", some_seconds(chance, 1.2, 2.0), "both", resets=True)),
        Fault(AtStep("E11", behind=True), Cut("client", 4.0)),
        Fault(AtStep("J12", behind=True), Kill(4.0), "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, **QUICK}
    load = {"delivery_timeout_s": 30.0, "topic_partitions": 1, "reopen_count": 0}
    return Story(faults, options, load)


def told_too_soon(chance: Random) -> Story:
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
    options = {"min_insync": 1, "partitions": 1, **QUICK}
    return Story(tuple(faults), options, {"topic_partitions": 1, "burst_count": 4})


def too_few(chance: Random) -> Story:
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


def refused_for_long(chance: Random) -> Story:
    """Nothing can be taken for longer than producers try."""
    gone = chance.choice((Kill, LosePower, Stop))(some_seconds(chance, 2.5, 4.0))
    faults = [Fault(when_producing(chance), gone, "follower")]
    if chance.random() < 0.5:
        faults.append(Fault(late(chance), chance.choice((Reset("client"), Pause(0.3))), "leader"))
    options = {"replicas": 2, "min_insync": 2, "flush_before_ack": True}
    load = {"delivery_timeout_s": 0.5, "burst_count": 4, "reopen_count": 0, "records": 40}
    return Story(tuple(faults), options, {**load, **_PIPELINED})


def sleeper(chance: Random) -> Story:
    """A leader sleeps, or is cut off, while another one is chosen; then it wakes up."""
    sleep = chance.choice((Pause(some_seconds(chance, 1.2, 3.0)), an_absence(chance)))
    return Story(
        (
            Fault(when_producing(chance), sleep, "leader"),
            *((Fault(soon(chance), a_death(chance), "leader"),) if chance.random() < 0.6 else ()),
        )
    )


def one_replica(chance: Random) -> Story:
    """There is nobody else who has it."""
    faults = [Fault(when_producing(chance), a_death(chance), "leader/0")]
    if chance.random() < 0.5:
        faults.append(Fault(soon(chance), a_death(chance), "leader/0"))
    return Story(tuple(faults), {"replicas": 1, "min_insync": 1, "flush_before_ack": True})


def answers_get_lost(chance: Random) -> Story:
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


def ghost(chance: Random) -> Story:
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
    return Story(faults, {**options, "flush_interval_s": 2.5, **QUICK}, load)


def unsteady(chance: Random) -> Story:
    """Connections and disks have their moods, and somebody dies."""
    faults = [Fault(when_producing(chance), some_trouble(chance))]
    for _ in range(chance.randint(1, 2)):
        what = chance.choice((some_trouble, some_trouble, a_death))
        target = chance.choice(("here", "leader", "follower"))
        faults.append(Fault(soon(chance), what(chance), target))
    return Story(tuple(faults))


def stopped(chance: Random) -> Story:
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


def gone_for_good(chance: Random) -> Story:
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


def one_link_breaks(chance: Random) -> Story:
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
