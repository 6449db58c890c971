"""Draws a plan from a seed: every option of a run.

Each run leaves out most kinds of faults and sets most options to something unusual (swarm testing:
Groce et al., ISSTA 2012), because some bugs only show if some kinds of faults are absent.  Every
option has a source of randomness of its own, so a new option changes no other draw of a seed.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Callable, Sequence
from itertools import chain
from math import inf
from random import Random
from typing import Final, TypeVar, get_args

import attrs

from octopi.limits import CLIENT_BATCH_BYTES, JOURNAL_SNAPSHOT_ENTRIES, RETENTION_CHECK_INTERVAL_S
from octopi.simulation.disk.faults import Delay, DiskFault, Fail, Tear
from octopi.simulation.faults.actions import (
    STEPS,
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BlackholeAccepts,
    BreakDisk,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Place,
    ProtectDisk,
    Refuse,
    Reset,
    RollBack,
    Slow,
    Stop,
    SwizzleClog,
    Way,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage, Harm, Part
from octopi.tracing import steps
from sim.generate.fault_kinds import DAMAGE, GONE, LINKS, POWER, RENEWED, STOPS, is_drawn
from sim.generate.fault_patterns import some_mishap
from sim.generate.members import group_chores, members
from sim.run.plan import Chore, Order, Plan, Tier, WorkloadOptions

T = TypeVar("T")

FAULTS_COUNT_MAX: Final = 8
NAMED_PRODUCERS: Final = (0, 0, 0, 1, 4)
"""How many producers have a name; each plan has one of these numbers."""
KILLS_EACH: Final = 0.125
"""The share of plans in which each broker is killed once more in the end, which takes long."""

SHEDS: Final = 0.1
"""The share of plans in which leaderships move by load."""

_RARE_OCCURRENCE: Final = 4
_OFTEN_OCCURRENCE: Final = 60
_OFTEN_STEPS: Final = frozenset(code for code in STEPS if code[0] in "PC")

_OF_OTHER_CLUSTERS: Final = (
    steps.OF_SEVERAL_REGISTERS
    | steps.OF_RINGS
    | steps.OF_RELAYS
    | steps.OF_SHEDDING
    | steps.OF_GENERATIONS
)
_PLACES: Final = tuple(one for one in STEPS if steps.BY_CODE[one] not in _OF_OTHER_CLUSTERS)
"""The codes of the steps at which faults strike."""
_OF_SHEDDING: Final = tuple(sorted(one.code for one in steps.OF_SHEDDING))

_EFFECTS: Final = tuple(
    (operation, edge)
    for operation, edges in (
        ("append", ("before", "after")),
        ("sync", ("before", "during", "after")),
        ("send", ("before", "after")),
        ("truncate", ("before", "after")),
        ("replace_file", ("before", "after")),
        ("rename", ("before", "after")),
        ("sync_directory", ("before", "during", "after")),
        ("remove", ("before", "after")),
        ("open", ("before", "after")),
        ("make_directory", ("before", "after")),
    )
    for edge in edges
)
_EFFECT_ROLES: Final = ("register", "leader", "follower", "broker")
_PEERS: Final = ("others", "register", "leader", "follower", "client")
_WAYS: Final[tuple[Way, ...]] = ("both", "both", "in", "out")
_TARGETS: Final = ("register", "leader", "leader/0", "follower", "broker", "broker-1", "client")
_CHORES: Final[tuple[Chore, ...]] = (
    *("topic", "drain", "grow", "move", "ask", "alter"),
    *(("renew", "replace") if is_drawn(RENEWED) else ()),
)


def draw(seed: int, tier: Tier | None = None) -> Plan:
    """The plan of *seed*; *tier* is drawn, too, if it isn't given."""
    return _Swarm(seed).plan(tier)


class _Swarm:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    def _randomness(self, *key: str | int) -> Random:
        named = "|".join(map(str, ("swarm", self._seed, *key)))
        state = hashlib.blake2b(named.encode(), digest_size=8).digest()
        return Random(int.from_bytes(state, "big"))

    def _pick(self, option: str, choices: Sequence[T]) -> T:
        return self._randomness(option).choice(choices)

    def plan(self, tier: Tier | None) -> Plan:
        brokers = self._pick("brokers", (3, 3, 3, 3, 2, 4, 5))
        partitions = self._pick("partitions", (1, 2, 2, 3, 4))
        replicas = self._pick("replicas", (3, 3, 3, 2, 1))
        tiers: Sequence[Tier] = ("message", "message", "message", "message", "websocket")
        orders: Sequence[Order] = ("random", "random", "random", "fifo")
        cuts_off = brokers >= 3 and replicas >= 2 and self._randomness("cut_off").random() < 0.1
        latency_s, jitter_s = self._pick(
            "latency", ((0.0005, 0.0005), (0.001, 0.0), (0.001, 0.02), (0.02, 0.005))
        )
        retains_bytes = self._randomness("retains").random() < 0.2
        retains_ms = self._randomness("retains_ms").random() < 0.1
        sheds = self._randomness("sheds").random() < SHEDS
        retains = retains_bytes or retains_ms
        check_s = self._pick("retention_check", (0.05, 0.3))
        return Plan(
            seed=self._seed,
            tier=self._pick("tier", tiers) if tier is None else tier,
            brokers=brokers,
            partitions=partitions,
            replicas=replicas,
            min_insync=self._min_insync(min(brokers, replicas), cuts_off),
            flush_before_ack=self._pick("flush_before_ack", (False, False, True)),
            flush_interval_s=self._pick("flush_interval", (1.0, 0.05, 0.3)),
            segment_bytes=4096 if retains else self._pick("segment", (None, None, 4096)),
            retention_bytes=self._pick("retention", (4096, 20_000)) if retains_bytes else None,
            retention_ms=self._pick("retention_ms", (300, 2000)) if retains_ms else None,
            retention_check_interval_s=check_s if retains else RETENTION_CHECK_INTERVAL_S,
            snapshot_entries=self._pick("snapshot", (JOURNAL_SNAPSHOT_ENTRIES, 3, 20)),
            rebalance_interval_s=self._pick("rebalance", (5.0, 5.0, 0.7)),
            latency_s=latency_s,
            jitter_s=jitter_s,
            order=self._pick("order", orders),
            kills_each=self._randomness("kills_each").random() < KILLS_EACH,
            loses_all=is_drawn(POWER) and self._randomness("loses_all").random() < 0.15,
            checkpoint_bytes=self._pick("checkpoint", (2000, 2000, 1_000_000)),
            cut_off=f"broker-{self._randomness('who').randint(1, brokers)}" if cuts_off else "",
            workload=self._workload(partitions),
            faults=self._faults(sheds=sheds),
            sheds=sheds,
            hold_ms=self._pick("hold_ms", (None, 500, 60_000)) if retains else None,
            hold_bytes=self._pick("hold_bytes", (None, 10_000, 500_000)) if retains else None,
            loses_power=self._randomness("loses_power").random() < 0.3,
        )

    def _min_insync(self, replicas: int, cuts_off: bool) -> int:
        most = replicas - cuts_off  # a broker that stays cut off is in no in-sync set
        return min(most, self._pick("min_insync", (1, 1, 1, 2))) or 1

    def _workload(self, partitions: int) -> WorkloadOptions:
        randomness = self._randomness("chores")
        chores = [
            randomness.choice(_CHORES) for _ in range(randomness.choice((0, 0, 0, 1, 1, 2, 3)))
        ]
        group = members(self._randomness)
        if group:
            chores += group_chores(self._randomness)
        return WorkloadOptions(
            producers=self._pick("producers", (4, 4, 1, 2, 3)),
            records=self._pick("records", (50, 50, 20, 80)),
            consumers=self._pick("consumers", (2, 2, 1, 3)),
            topics=self._pick("topics", (1, 1, 2, 3)),
            topic_partitions=self._randomness("topic_partitions").randint(1, partitions),
            value_bytes_max=self._pick("value_bytes", (100, 400, 3_000, 20_000)),
            burst_count=self._pick("burst", (1, 1, 5, 20)),
            pause_s=self._pick("pause", (0.004, 0.004, 0.02, 0.0)),
            reopen_count=self._pick("reopen", (0, 0, 10)),
            delivery_timeout_s=self._pick("delivery_timeout", (30.0, 30.0, 1.0)),
            consumer_pause_s=self._pick("consumer_pause", (0.0, 0.0, 0.02)),
            starts_late=self._pick("starts_late", (False, False, True)),
            chores=tuple(chores),
            batch_bytes=self._pick("batch_bytes", (CLIENT_BATCH_BYTES, 1, 1_000)),
            entrances=self._pick("entrances", ("register", "register", "brokers", "any")),
            **group,
            named_producers=self._pick("named_producers", NAMED_PRODUCERS),
        )

    # --- faults --------------------------------------------------------------------------

    def _faults(self, *, sheds: bool) -> tuple[InjectedFault, ...]:
        randomness = self._randomness("kinds")
        kinds = randomness.sample(_ACTIONS, randomness.randint(1, 5))
        count = self._randomness("faults").choice((0, 1, 2, 3, 4, 5, 5, 5, 6, FAULTS_COUNT_MAX))
        faults = [self._fault(self._randomness("fault", number), kinds) for number in range(count)]
        if sheds and faults:
            place = self._randomness("shedding")
            code, occurrence = place.choice(_OF_SHEDDING), place.randint(1, _RARE_OCCURRENCE)
            faults[0] = attrs.evolve(faults[0], place=AtStep(code, occurrence=occurrence))
        return tuple(faults)

    def _fault(
        self, randomness: Random, kinds: Sequence[Callable[[Random], Action]]
    ) -> InjectedFault:
        action = randomness.choice(kinds)(randomness)
        place = _place(randomness)
        target = "here"
        if isinstance(place, AtTime) or randomness.random() < 0.2:
            target = randomness.choice(_TARGETS)
        return InjectedFault(place, action, target)


def _place(randomness: Random) -> Place:
    kind = randomness.random()
    if kind < 0.55:
        code = randomness.choice(_PLACES)
        often = code in _OFTEN_STEPS
        occurrence = randomness.randint(1, _OFTEN_OCCURRENCE if often else _RARE_OCCURRENCE)
        return AtStep(code, occurrence=occurrence)
    if kind < 0.8:
        operation, edge = randomness.choice(_EFFECTS)
        occurrence = randomness.choice((randomness.randint(1, 5), randomness.randint(1, 100)))
        return AtEffect(operation, edge, randomness.choice(_EFFECT_ROLES), occurrence)
    if kind < 0.95:
        return AtTime(_seconds(randomness, 0.0, 2.5))
    condition, most = randomness.choice((("acknowledged", 100), ("epoch", 5), ("in_sync", 2)))
    return When(condition, randomness.randint(1, most))


def _seconds(randomness: Random, least: float, most: float) -> float:
    return round(randomness.uniform(least, most), 3)


def _restart_s(randomness: Random) -> float | None:
    return randomness.choice(
        (0.0, 0.05, _seconds(randomness, 0.0, 1.0), _seconds(randomness, 1.0, 4.0), None)
    )


def _long_s(randomness: Random) -> float:
    """A time that is shorter or longer than other nodes need to notice an absence."""
    return randomness.choice((_seconds(randomness, 0.05, 0.9), _seconds(randomness, 1.0, 4.0)))


def _disk_fault(randomness: Random) -> Action:
    number = randomness.choice((errno.EIO, errno.ENOSPC))
    operation = randomness.choice(("append", "sync", "sync", "truncate", "open", "rename", ""))
    how = Fail(
        error_number=number if operation != "sync" else errno.EIO,
        written_fraction=randomness.choice((0.0, 0.5, 0.9)),
        done=randomness.random() < 0.2,
    )
    times = randomness.choice((1, 1, 1, 3, 20))
    return BreakDisk(DiskFault(operation, how, calls_before=randomness.randrange(4), times=times))


def _slow_sync(randomness: Random) -> Action:
    how = Delay(
        randomness.choice((_seconds(randomness, 0.01, 2.0), _seconds(randomness, 0.01, 0.1)))
    )
    return BreakDisk(DiskFault("sync", how, times=randomness.choice((1, 3, 20))))


def _cut(randomness: Random) -> Action:
    return Cut(
        randomness.choice(_PEERS),
        _long_s(randomness),
        randomness.choice(_WAYS),
        randomness.random() < 0.3,
        randomness.random() < 0.4,
    )


def _slow(randomness: Random) -> Action:
    return Slow(
        randomness.choice(_PEERS),
        _long_s(randomness),
        latency_s=_seconds(randomness, 0.01, 0.5),
        bytes_per_s=randomness.choice((1e9, 1e9, 20_000.0)),
        loss_chance=randomness.choice((0.0, 0.0, 0.2)),
    )


def _spoil(randomness: Random) -> Action:
    return some_mishap(randomness, _PEERS, _WAYS)


def _damage(randomness: Random) -> Action:
    return Damage(
        randomness.choice(get_args(Harm)),
        randomness.choice(("log", "log", *get_args(Part))),
        _restart_s(randomness),
        _seconds(randomness, 0.1, 1.0),
    )


def _reset_link(randomness: Random) -> Action:
    return Reset(randomness.choice(_PEERS), randomness.choice(("membership", "follow", "client")))


def _last_death(randomness: Random) -> Action:
    return randomness.choice((Kill, LosePower, Stop))(inf)


_MAKERS: Final[tuple[Callable[[Random], Action], ...]] = (
    lambda randomness: Kill(_restart_s(randomness)),
    lambda randomness: Kill(_restart_s(randomness)),
    lambda randomness: LosePower(_restart_s(randomness)),
    lambda randomness: LosePower(_restart_s(randomness)),
    lambda randomness: Stop(_restart_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    lambda randomness: Pause(_long_s(randomness)),
    _cut,
    _cut,
    lambda randomness: Reset(randomness.choice(_PEERS)),
    _spoil,
    _slow,
    lambda randomness: Refuse(_long_s(randomness)),
    lambda randomness: BlackholeAccepts(_long_s(randomness)),
    lambda randomness: SwizzleClog(_long_s(randomness)),
    _disk_fault,
    _slow_sync,
    lambda randomness: BreakDisk(DiskFault("append", Tear(), calls_before=randomness.randrange(9))),
    lambda randomness: FillDisk(_long_s(randomness)),
    lambda randomness: ProtectDisk(_long_s(randomness)),
    lambda randomness: Wipe(_restart_s(randomness)),
    lambda randomness: BitFlip(_restart_s(randomness)),
    lambda randomness: RollBack(_seconds(randomness, 0.1, 1.0), _restart_s(randomness)),
    lambda randomness: DriftClock(randomness.choice((0.95, 1.05, 0.5, 2.0)), _long_s(randomness)),
    lambda randomness: JumpClock(randomness.choice((-3600.0, 3600.0, 86_400.0 * 30))),
)
"""The functions that draw an action; one that is listed twice is drawn more often."""

_MORE_MAKERS: Final[dict[str, tuple[Callable[[Random], Action], ...]]] = {
    DAMAGE: (_damage, _damage),
    STOPS: (lambda randomness: Stop(_restart_s(randomness)),),
    LINKS: (_reset_link,),
    GONE: (_last_death,),
}
"""The same, by the kind of `sim.generate.fault_kinds` that has to be switched on."""

_ACTIONS: Final = (
    *_MAKERS,
    *chain.from_iterable(makers for kind, makers in _MORE_MAKERS.items() if is_drawn(kind)),
)


def describe(plan: Plan) -> str:
    """Every option of *plan*, a line each."""
    options = {**attrs.asdict(plan, recurse=False), **attrs.asdict(plan.workload)}
    del options["workload"], options["faults"]
    lines = [f"{name} = {value!r}" for name, value in options.items()]
    return "\n".join([*lines, *(f"fault: {fault}" for fault in plan.faults)])
