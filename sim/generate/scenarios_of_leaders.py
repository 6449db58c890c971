"""Scenarios in which leaders and followers die, pause, stop or are cut off, and another leads."""

from __future__ import annotations

from math import inf
from random import Random
from typing import Final

from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import (
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Reset,
    Slow,
    Stop,
)
from sim.generate.fault_patterns import (
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
from sim.generate.scenario import PIPELINED, Scenario


def one_dies(randomness: Random) -> Scenario:
    who = randomness.choice(("here", "leader", "follower"))
    return Scenario((InjectedFault(when_producing(randomness), a_death(randomness), who),))


def one_after_the_other(randomness: Random) -> Scenario:
    """A broker dies; then it, or another node, dies while the cluster recovers."""
    second = randomness.choice(("here", "here", "leader", "follower", "register"))
    return Scenario(
        (
            InjectedFault(
                when_producing(randomness),
                a_death(randomness),
                randomness.choice(("leader", "follower")),
            ),
            InjectedFault(soon(randomness), a_death(randomness), second),
        )
    )


def ends_are_asked_for(randomness: Random) -> Scenario:
    """One leader after the other dies, and the devices of the brokers are slow.  Meanwhile a client
    asks again and again where the logs end."""
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.05, 0.3)), times=200))
    faults = [InjectedFault(AtTime(0.4), slow, one) for one in BROKERS]
    for _ in range(randomness.choice((1, 2, 3))):
        death = Kill(some_seconds(randomness, 0.2, 2.0))
        step = AtStep(
            randomness.choice(("P7b", "P6b", "P6d")), "any", randomness.randint(1, 6), behind=True
        )
        faults.append(InjectedFault(step, death, "leader"))
    load = {"chores": ("end",) * 3, "records": 60, "pause_s": 0.03}
    return Scenario(tuple(faults), {**QUICK, "replicas": randomness.choice((2, 3))}, load)


def leaders_die(randomness: Random) -> Scenario:
    """One leader after the other dies, so logs diverge and have to be made equal again."""
    steps = ("P2b", "P2d", "P3b", "P5a", "P6b", "P7a", "P7b")
    place = AtStep(
        randomness.choice((*steps, "E11", "E15")), "leader", randomness.randint(1, 3), True
    )
    first = AtStep(randomness.choice(steps), occurrence=randomness.randint(1, 20))
    again = [
        InjectedFault(place, a_death(randomness), "leader") for _ in range(randomness.randint(1, 2))
    ]
    return Scenario((InjectedFault(first, a_death(randomness), "leader"), *again))


def left_alone(randomness: Random) -> Scenario:
    """A follower is away; the leader goes on without it and dies; then the follower comes back."""
    place = randomness.choice((late, soon))
    replicas = randomness.choice((2, 3))
    return Scenario(
        (
            InjectedFault(when_producing(randomness), an_absence(randomness), "follower"),
            InjectedFault(
                place(randomness), randomness.choice((a_death, an_absence))(randomness), "leader"
            ),
        ),
        {"replicas": replicas},
    )


def all_alone(randomness: Random) -> Scenario:
    """All followers are away, then the leader, too."""
    away = an_absence(randomness)
    return Scenario(
        (
            InjectedFault(when_producing(randomness), away, "follower"),
            InjectedFault(
                AtTime(0.0, True), randomness.choice((away, Pause(2.5), Kill(2.5))), "follower"
            ),
            InjectedFault(
                late(randomness), randomness.choice((a_death, an_absence))(randomness), "leader"
            ),
        )
    )


def last_one(randomness: Random) -> Scenario:
    """One broker is slow; then all others die, so only its records are left."""
    survivor, *others = randomness.sample(BROKERS, len(BROKERS))
    weakness = randomness.choice(
        (
            Slow("others", 3.0, latency_s=some_seconds(randomness, 0.05, 0.6)),
            Cut("others", some_seconds(randomness, 0.1, 0.9), "in", holds=True),
            Cut("others", some_seconds(randomness, 0.1, 0.9), "both", holds=True),
            Pause(some_seconds(randomness, 0.1, 0.9)),
            BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.05, 0.9)), times=20)),
            Kill(some_seconds(randomness, 0.0, 0.8)),
            LosePower(some_seconds(randomness, 0.0, 0.8)),
            Reset("others"),
        )
    )
    deaths = [
        randomness.choice((Kill, LosePower))(
            randomness.choice((some_seconds(randomness, 1.5, 3.0), None))
        )
        for _ in others
    ]
    behind = randomness.choice((at_once, shortly, soon))
    return Scenario(
        (
            InjectedFault(when_producing(randomness), weakness, survivor),
            InjectedFault(behind(randomness), deaths[0], others[0]),
            *(
                InjectedFault(AtTime(0.0, True), *one)
                for one in zip(deaths[1:], others[1:], strict=True)
            ),
        )
    )


def left_behind(randomness: Random) -> Scenario:
    """A slow follower lags, and the leader dies as soon as it has committed records without it.
    Another follower is paused, so for a while the next leader doesn't know which records it has."""
    commit = AtStep(
        randomness.choice(("P6b", "P7a", "P7b")), "any", randomness.choice((1, 2)), True
    )
    gone = AtStep(randomness.choice(("E11", "E12", "J7")), behind=True)
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.1, 0.15)), times=40))
    first = AtStep("P2b", occurrence=randomness.choice((1, 2, 3, 5)))
    return Scenario(
        (
            InjectedFault(first, Cut("leader", 3.0), "follower"),
            InjectedFault(AtTime(0.0, behind=True), slow),
            InjectedFault(commit, Kill(3.0), "leader"),
            InjectedFault(
                gone, randomness.choice((Pause(0.9), Pause(0.9), Pause(0.9), Kill(2.0))), "follower"
            ),
            *(
                (InjectedFault(soon(randomness), Kill(None), "leader"),)
                if randomness.random() < 0.3
                else ()
            ),
        ),
        {"brokers": 4, "replicas": 4, "min_insync": 1, "latency_s": 0.02, "jitter_s": 0.005},
    )


def candidates_die(randomness: Random) -> Scenario:
    """A candidate, or a replica that accepts it, loses its power in the middle of an election."""
    before = ("E4", "E6a", "E9a", "E11", "E12", "J10")
    behind = ("D2b", "E6b", "E7", "E8b", "E10b", "J7")  # replicas that accepted have flushed
    step = randomness.choice(randomness.choice((before, behind, behind)))
    place = AtStep(step, occurrence=randomness.choice((1, 1, 2)), behind=True)
    first = randomness.choice((Kill, Kill, LosePower, Stop))(some_restart_s(randomness))
    target = randomness.choice(("here", "leader", "follower"))
    return Scenario(
        (
            InjectedFault(when_producing(randomness), first, "leader"),
            InjectedFault(place, LosePower(randomness.choice((0.0, 0.1, 0.5))), target),
            *(
                (InjectedFault(soon(randomness), a_death(randomness), "leader"),)
                if randomness.random() < 0.3
                else ()
            ),
        ),
        {
            "replicas": randomness.choice((2, 3)),
            "min_insync": 1,
            "flush_before_ack": False,
            "flush_interval_s": 2.5,
        },
    )


def joiner_dies(randomness: Random) -> Scenario:
    """A follower dies while it joins the in-sync set again.  The register may be slow."""
    steps = ("J11", "J11", "J11", "E16b", "E17a", "E17b", "J12")
    death = randomness.choice((Kill, LosePower, LosePower, LosePower))(
        randomness.choice((0.0, 0.0, 0.1))
    )
    slow = Slow("register", 2.0, latency_s=some_seconds(randomness, 0.3, 0.7))
    faults = [
        InjectedFault(
            when_producing(randomness), Kill(some_seconds(randomness, 0.1, 0.4)), "follower"
        ),
        InjectedFault(AtStep(randomness.choice(steps), behind=True), death, "follower"),
    ]
    if randomness.random() < 0.7:
        faults.insert(1, InjectedFault(AtStep("J9b", behind=True), slow, "leader"))
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    options = {"replicas": randomness.choice((2, 2, 3)), "min_insync": 1, "flush_before_ack": False}
    return Scenario(tuple(faults), {**options, "flush_interval_s": 1.0, **QUICK})


def cut_and_leads_again(randomness: Random) -> Scenario:
    """A leader that is cut off appends records that no follower gets.  It comes back, and leads
    again before producers have found the leader in between."""
    unheard = AtStep("P2a", "leader", randomness.choice((2, 3, 5, 8)))
    faults = (
        InjectedFault(
            unheard, Cut("others", some_seconds(randomness, 1.2, 2.0), "both", resets=True)
        ),
        InjectedFault(AtStep("E11", behind=True), Cut("client", 4.0)),
        InjectedFault(AtStep("J12", behind=True), Kill(4.0), "leader"),
    )
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, **QUICK}
    load = {"delivery_timeout_s": 30.0, "topic_partitions": 1, "reopen_count": 0}
    return Scenario(faults, options, load)


_STEADY: Final = {
    "topic_partitions": 1,
    "producers": 2,
    "records": 120,
    "burst_count": 1,
    "pause_s": 0.03,
    "delivery_timeout_s": 30.0,
}
"""A load of one log that goes on for some seconds, and is never more than a few messages ahead."""


def _leads_unheard(randomness: Random) -> list[InjectedFault]:
    """The first leader hears clients alone for a time, while another broker is elected."""
    seconds = some_seconds(randomness, 1.2, 1.6)
    return [
        InjectedFault(
            AtTime(some_seconds(randomness, 0.4, 0.8)),
            Cut("broker", seconds, resets=True),
            "broker-1",
        ),
        InjectedFault(AtTime(0.0, behind=True), Cut("register", seconds, resets=True), "broker-1"),
    ]


def cut_in_the_dark(randomness: Random) -> Scenario:
    """A leader flushes records that no follower gets.  It becomes a follower and cuts them off, and
    its machine loses its power when it has appended the first records of the next epoch."""
    faults = (
        *_leads_unheard(randomness),
        InjectedFault(AtStep("E13b", behind=True), Pause(0.0)),  # the next one counts from here
        InjectedFault(AtStep("P3b", behind=True), LosePower(0.1), "here"),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    often = {"flush_before_ack": False, "flush_interval_s": randomness.choice((0.1, 0.3))}
    options = {"replicas": 2, "min_insync": 1, "partitions": 1, **often}
    return Scenario(faults, {**options, **QUICK}, _STEADY)


def flushes_while_it_is_cut(randomness: Random) -> Scenario:
    """Like `cut_in_the_dark`, but records count only on the device, which is slow: a flush of what
    is cut off ends during the cut, and before that the next epoch's first records are there."""
    unheard = _leads_unheard(randomness)
    assert isinstance(unheard[0].action, Cut)
    flush_s = round(unheard[0].action.seconds + some_seconds(randomness, 0.1, 0.35), 2)
    slow = BreakDisk(DiskFault("sync", Delay(flush_s), ".log"))
    slower = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.5, 0.8)), ".ends"))
    faults = (
        *unheard,
        InjectedFault(AtStep("P2b", "broker-1", behind=True), slow),
        InjectedFault(AtStep("E13a", behind=True), slower),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    # With two replicas, it would flush all it has before it asked to lead alone.
    options = {"replicas": 3, "min_insync": 1, "partitions": 1, "flush_before_ack": True}
    options["checkpoint_bytes"] = 1_000_000
    return Scenario(faults, {**options, **QUICK}, _STEADY)


def only_one_is_left(randomness: Random) -> Scenario:
    """Two of three replicas in sync end at the same moment, and the third one leads alone."""
    dead = Kill(some_seconds(randomness, 2.5, 4.0))
    place = AtTime(some_seconds(randomness, 0.5, 1.5))
    gone = ("broker-1", randomness.choice(("broker-2", "broker-3")))  # the first one leads
    faults = [InjectedFault(place, dead, gone[0]), InjectedFault(AtTime(0.0, True), dead, gone[1])]
    options = {"replicas": 3, "min_insync": 1, "partitions": 1}
    load = {"topic_partitions": 1, "records": 80, "pause_s": 0.04, "delivery_timeout_s": 30.0}
    return Scenario(tuple(faults), options, load)


def told_too_soon(randomness: Random) -> Scenario:
    """A leader that is cut off from other brokers gets records, and gets them again when producers
    repeat them; no follower gets them.  Then the leader dies."""
    step = AtStep(
        randomness.choice(("P1", "P2a", "P2b")), "leader", randomness.choice((1, 2, 5, 12))
    )
    cut = Cut("broker", 4.0, randomness.choice(("both", "out")))
    faults = [
        InjectedFault(step, cut, "leader"),
        InjectedFault(
            AtTime(some_seconds(randomness, 0.0, 0.3), behind=True), Reset("client"), "leader"
        ),
        InjectedFault(AtTime(some_seconds(randomness, 0.1, 0.5), behind=True), Kill(4.0), "leader"),
    ]
    if randomness.random() < 0.3:
        del faults[1]
    options = {"min_insync": 1, "partitions": 1, **QUICK}
    return Scenario(tuple(faults), options, {"topic_partitions": 1, "burst_count": 4})


def too_few(randomness: Random) -> Scenario:
    """With two of two replicas required, a follower dies: no record can be committed until it is in
    sync again."""
    place = when_producing(randomness)
    slow = Slow("others", 2.0, latency_s=some_seconds(randomness, 0.05, 0.3))
    return Scenario(
        (
            InjectedFault(place, LosePower(some_seconds(randomness, 0.0, 0.5)), "follower"),
            InjectedFault(AtStep(randomness.choice(("J2", "J5b", "J7")), behind=True), slow),
            InjectedFault(soon(randomness), a_death(randomness), "leader"),
        )[: randomness.randint(1, 3)],
        {"replicas": 2, "min_insync": 2, "flush_before_ack": False, "flush_interval_s": 1.0},
    )


def refused_for_long(randomness: Random) -> Scenario:
    """With two of two replicas required, a follower is away for longer than producers try."""
    gone = randomness.choice((Kill, LosePower, Stop))(some_seconds(randomness, 2.5, 4.0))
    faults = [InjectedFault(when_producing(randomness), gone, "follower")]
    if randomness.random() < 0.5:
        faults.append(
            InjectedFault(
                late(randomness), randomness.choice((Reset("client"), Pause(0.3))), "leader"
            )
        )
    options = {"replicas": 2, "min_insync": 2, "flush_before_ack": True}
    load = {"delivery_timeout_s": 0.5, "burst_count": 4, "reopen_count": 0, "records": 40}
    return Scenario(tuple(faults), options, {**load, **PIPELINED})


def sleeper(randomness: Random) -> Scenario:
    """A leader is paused, or cut off, while another one is elected; then it continues."""
    sleep = randomness.choice((Pause(some_seconds(randomness, 1.2, 3.0)), an_absence(randomness)))
    return Scenario(
        (
            InjectedFault(when_producing(randomness), sleep, "leader"),
            *(
                (InjectedFault(soon(randomness), a_death(randomness), "leader"),)
                if randomness.random() < 0.6
                else ()
            ),
        )
    )


def one_replica(randomness: Random) -> Scenario:
    """A partition has one replica, and its broker dies once or twice."""
    faults = [InjectedFault(when_producing(randomness), a_death(randomness), "leader/0")]
    if randomness.random() < 0.5:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader/0"))
    return Scenario(tuple(faults), {"replicas": 1, "min_insync": 1, "flush_before_ack": True})


def answers_get_lost(randomness: Random) -> Scenario:
    """The answers to batches are lost, so producers send the batches again."""
    step = randomness.choice(("C1b", "P1", "P2b", "P5a", "P6b", "P7a", "P7b"))
    place = AtStep(step, occurrence=randomness.randint(2, 40))
    cut = Cut(
        "client",
        some_seconds(randomness, 0.05, 2.0),
        randomness.choice(("both", "out")),
        resets=True,
    )
    loss = randomness.choice((Reset("client"), cut, a_death(randomness), Pause(1.5)))
    faults = [InjectedFault(place, loss, "leader")]
    for _ in range(randomness.randint(0, 2)):
        again = AtStep(randomness.choice(("C2b", "P1", "P2b", "P7a", "E11", "C6")), behind=True)
        strike = randomness.choice((Reset("client"), Reset("client"), a_death(randomness)))
        faults.append(InjectedFault(again, strike, "leader/0"))
    return Scenario(tuple(faults), load={"burst_count": randomness.choice((4, 12)), **PIPELINED})


def ghost(randomness: Random) -> Scenario:
    """A follower loses records that it has acknowledged, and comes back slowly, maybe before its
    last acknowledgement has reached the leader."""
    records = randomness.choice((3, 5, 8))
    said = AtStep("P3b", "follower", records - randomness.choice((0, 0, 1)))
    delayed = Slow("leader", 0.3, latency_s=some_seconds(randomness, 0.5, 0.9))
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.2, 0.6)), times=20))
    stalled = Cut("leader", some_seconds(randomness, 0.7, 1.2), "in", holds=True)
    faults = (
        InjectedFault(said, delayed if randomness.random() < 0.6 else Reset("client")),
        InjectedFault(AtStep("P4b", "follower", 1, behind=True), LosePower(0.0)),
        InjectedFault(AtStep("J8b", behind=True), randomness.choice((slow, stalled))),
        InjectedFault(AtTime(4.0), Reset("client"), "leader"),  # healing can't begin before this
    )
    options = {"partitions": 1, "replicas": 2, "min_insync": 1, "flush_before_ack": False}
    load = {"producers": 1, "records": records, "burst_count": 1, "topic_partitions": 1}
    load |= {"named_producers": 0, "members": 0}  # the follower appends these records alone
    return Scenario(faults, {**options, "flush_interval_s": 2.5, **QUICK}, load)


def unsteady(randomness: Random) -> Scenario:
    """Connections and disks have passing troubles, and maybe a broker dies."""
    faults = [InjectedFault(when_producing(randomness), some_trouble(randomness))]
    for _ in range(randomness.randint(1, 2)):
        what = randomness.choice((some_trouble, some_trouble, a_death))
        target = randomness.choice(("here", "leader", "follower"))
        faults.append(InjectedFault(soon(randomness), what(randomness), target))
    return Scenario(tuple(faults))


def stopped(randomness: Random) -> Scenario:
    """A leader is asked to stop, and another node fails while its work is taken over."""
    first = InjectedFault(when_producing(randomness), Stop(some_restart_s(randomness)), "leader")
    second = randomness.choice(
        (
            InjectedFault(
                AtStep(randomness.choice(("E1", "E2", "E5", "E8a", "E19a", "E16a")), behind=True),
                randomness.choice((Stop, Kill))(some_restart_s(randomness)),
                "register",
            ),
            InjectedFault(
                soon(randomness),
                randomness.choice((Kill, LosePower))(some_restart_s(randomness)),
                "here",
            ),
            InjectedFault(soon(randomness), Stop(some_restart_s(randomness)), "here"),
            InjectedFault(soon(randomness), Stop(some_restart_s(randomness)), "leader"),
            InjectedFault(
                soon(randomness), Slow("others", 2.0, some_seconds(randomness, 0.05, 0.5)), "here"
            ),
        )
    )
    faults = [first, second]
    if randomness.random() < 0.4:
        slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.1, 1.5)), times=20))
        faults.insert(0, InjectedFault(AtTime(some_seconds(randomness, 0.0, 0.6)), slow, "leader"))
    if randomness.random() < 0.3:
        faults.append(InjectedFault(soon(randomness), Stop(some_restart_s(randomness)), "follower"))
    return Scenario(tuple(faults), {"min_insync": randomness.choice((1, 1, 2))})


def gone_for_good(randomness: Random) -> Scenario:
    """A broker stops or dies, maybe with a slow disk, and never comes back."""
    ends = randomness.choice((Stop, Stop, Stop, Kill, LosePower))(inf)
    slow = BreakDisk(DiskFault("sync", Delay(some_seconds(randomness, 0.1, 1.5)), times=20))
    who = randomness.choice(("leader", "leader", "follower"))
    faults = [InjectedFault(when_producing(randomness), ends, who)]
    if randomness.random() < 0.5:
        faults.insert(0, InjectedFault(AtTime(some_seconds(randomness, 0.0, 0.6)), slow, "leader"))
    if randomness.random() < 0.3:
        faults.append(
            InjectedFault(
                soon(randomness), a_death(randomness), randomness.choice(("leader", "register"))
            )
        )
    return Scenario(tuple(faults), {"replicas": 3, "min_insync": randomness.choice((1, 1, 2))})


def one_link_breaks(randomness: Random) -> Scenario:
    """A single connection breaks, once or more often."""
    faults = [
        InjectedFault(
            when_producing(randomness) if not number else soon(randomness),
            Reset(
                randomness.choice(("others", "register", "leader", "follower")),
                randomness.choice(("membership", "membership", "follow", "follow", "client")),
            ),
            randomness.choice(("leader", "leader", "follower")),
        )
        for number in range(randomness.randint(1, 4))
    ]
    if randomness.random() < 0.4:
        faults.append(InjectedFault(soon(randomness), a_death(randomness), "leader"))
    return Scenario(tuple(faults))
