"""The candidates for a smaller plan: each pass yields plans that are simpler in one respect.

The candidates that leave out most come first in a pass, so that large plans shrink in few runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from octopi.cli.rendering import counted
from octopi.simulation.disk.faults import DiskFault
from octopi.simulation.faults.actions import (
    Action,
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    Place,
    Reset,
    Stop,
    When,
)
from octopi.simulation.faults.shrinking import leaving_out, simpler_kinds, smaller_counts
from sim.run.plan import Plan, WorkloadOptions
from sim.search.shrink_places import steps_near

T = TypeVar("T", Plan, WorkloadOptions)

Candidate: TypeAlias = tuple[str, Plan]
"""A text that says what is simpler, and the plan."""

_SIMPLEST_ACTIONS: Final[tuple[Action, ...]] = (
    Reset(),
    Cut(),
    Pause(),
    Stop(),
    Kill(),
    LosePower(),
)
"""The simplest actions, the simplest one first; all other kinds are less simple."""

_LEAST: Final = {"producers": 1, "records": 1, "consumers": 1, "topics": 1, "topic_partitions": 1}
_PLAIN: Final[dict[str, Any]] = {
    **{one.name: one.default for one in attrs.fields(Plan) if one.default is not attrs.NOTHING},
    "order": "fifo",
    "jitter_s": 0.0,
}
_KEPT: Final = frozenset({"brokers", "partitions", "replicas", "workload", "faults"})
"""Options that other passes shrink."""


def size(plan: Plan) -> str:
    """The size of *plan*, as text."""
    load = plan.workload
    parts = [
        counted(len(plan.faults), "fault"),
        counted(load.producers, "producer"),
        counted(load.records, "record"),
        counted(load.consumers, "consumer"),
        counted(plan.brokers, "broker"),
    ]
    return ", ".join(parts)


# --- fewer faults ----------------------------------------------------------------------------


def fewer_faults(plan: Plan) -> Iterator[Candidate]:
    """Plans without all faults, without half of them, without a quarter, and so on."""
    for left in leaving_out(plan.faults):
        gone = len(plan.faults) - len(left)
        yield f"without {counted(gone, 'fault')}", attrs.evolve(plan, faults=left)


# --- less work, a smaller cluster ----------------------------------------------------------


def less_load(plan: Plan) -> Iterator[Candidate]:
    """Fewer clients that do less."""
    load = plan.workload
    for name, least in _LEAST.items():
        for count in smaller_counts(getattr(load, name), least):
            workload = _changed(load, **{name: count})
            yield f"{name} = {count}", attrs.evolve(plan, workload=workload)
    for number in range(len(load.chores)):
        workload = attrs.evolve(load, chores=load.chores[:number] + load.chores[number + 1 :])
        yield f"without chore {load.chores[number]}", attrs.evolve(plan, workload=workload)
    for field in attrs.fields(type(load)):
        if field.name not in {*_LEAST, "chores"} and getattr(load, field.name) != field.default:
            workload = _changed(load, **{field.name: field.default})
            yield f"{field.name} = {field.default}", attrs.evolve(plan, workload=workload)


def smaller_cluster(plan: Plan) -> Iterator[Candidate]:
    """Fewer partitions, brokers and replicas."""
    for name, least in (
        ("partitions", plan.workload.topic_partitions),
        ("brokers", 1),
        ("replicas", 1),
    ):
        for count in smaller_counts(getattr(plan, name), least):
            yield f"{name} = {count}", _changed(plan, **{name: count})


def plainer_options(plan: Plan) -> Iterator[Candidate]:
    """Options with their defaults, and less randomness in the network and in the order of tasks."""
    changed = {
        name: value
        for name, value in _PLAIN.items()
        if name not in _KEPT and getattr(plan, name) != value
    }
    if len(changed) > 1:
        yield "nothing unusual", _changed(plan, **changed)
    for name, value in changed.items():
        yield f"{name} = {value}", _changed(plan, **{name: value})
    if plan.seed != 1:
        yield "seed = 1", attrs.evolve(plan, seed=1)


def _changed(options: T, **values: Any) -> T:  # noqa: ANN401
    """*options* with other *values*, whose names mypy can't check."""
    evolve: Any = attrs.evolve
    changed: T = evolve(options, **values)
    return changed


# --- simpler faults --------------------------------------------------------------------------


def simpler_actions(plan: Plan) -> Iterator[Candidate]:
    """For each fault: simpler actions at its place."""
    for number, fault in enumerate(plan.faults):
        for action in _simpler(fault.action):
            yield f"{action}", _with(plan, number, attrs.evolve(fault, action=action))


def _simpler(action: Action) -> Iterator[Action]:
    yield from simpler_kinds(action, _SIMPLEST_ACTIONS)
    plain = (
        BreakDisk(DiskFault(action.fault.operation))
        if isinstance(action, BreakDisk)
        else type(action)()
    )
    if plain != action:
        yield plain


def earlier_places(plan: Plan) -> Iterator[Candidate]:
    """For each fault: an earlier moment."""
    for number, fault in enumerate(plan.faults):
        for place in _earlier(fault.place):
            yield f"{place}", _with(plan, number, attrs.evolve(fault, place=place))


def _earlier(place: Place) -> Iterator[Place]:
    match place:
        case AtStep(occurrence=occurrence) | AtEffect(occurrence=occurrence):
            for count in smaller_counts(occurrence, 1):
                yield attrs.evolve(place, occurrence=count)
        case When(count=count):
            for fewer in smaller_counts(count, 1):
                yield attrs.evolve(place, count=fewer)
        case AtTime(seconds=seconds):
            for digits in (1, 2):
                yield attrs.evolve(place, seconds=round(seconds, digits))


def steps_instead(plan: Plan) -> Iterator[Candidate]:
    """For each fault that isn't at a step: a step that a host reached shortly before."""
    for number, fault in enumerate(plan.faults):
        if isinstance(fault.place, AtStep):
            continue
        for place, target in steps_near(plan, number):
            yield f"{place}", _with(plan, number, InjectedFault(place, fault.action, target))


def _with(plan: Plan, number: int, fault: InjectedFault) -> Plan:
    faults = (*plan.faults[:number], fault, *plan.faults[number + 1 :])
    return attrs.evolve(plan, faults=faults)


PASSES: Final[tuple[Callable[[Plan], Iterator[Candidate]], ...]] = (
    fewer_faults,
    less_load,
    smaller_cluster,
    plainer_options,
    simpler_actions,
    steps_instead,
    earlier_places,
)
"""The passes, in the order in which they are tried."""
