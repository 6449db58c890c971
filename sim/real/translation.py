"""Which part of a plan can happen to real processes, and what is left out, in words.

Processes can be killed, asked to stop, paused and started again; links between them can be cut and
reset; files of a broker that is down can be damaged.  What happens inside a process can't be seen
or changed from outside: its steps, its clock, and its calls to the disk.

A fault with a place behind another one waits for that one.  If the place of a fault can't be seen,
the faults behind it are left out, too.  If only its action is impossible, its place is waited for,
and the faults behind it strike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import attrs

from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BitFlip,
    BlackholeAccepts,
    BreakDisk,
    CorruptLink,
    Cut,
    DriftClock,
    FillDisk,
    InjectedFault,
    JumpClock,
    LosePower,
    ProtectDisk,
    Refuse,
    Reset,
    RollBack,
    Slow,
    When,
    Wipe,
)
from octopi.simulation.faults.damage import Damage
from sim.run.plan import Plan, WorkloadOptions

_OF_CLOCKS: Final = "the clock of a process is that of this machine"
_OF_LINKS: Final = "links between processes are cut or reset, and nothing else happens to them"
_OF_DISKS: Final = "the disk of a process is that of this machine"
_IMPOSSIBLE: Final[dict[type, str]] = {
    LosePower: "a process that dies loses nothing that it wrote, and this machine stays on",
    CorruptLink: _OF_LINKS,
    Slow: _OF_LINKS,
    Refuse: _OF_LINKS,
    BlackholeAccepts: _OF_LINKS,
    BreakDisk: _OF_DISKS,
    FillDisk: _OF_DISKS,
    ProtectDisk: _OF_DISKS,
    RollBack: "the files of a process that runs can't be copied at one instant",
    DriftClock: _OF_CLOCKS,
    JumpClock: _OF_CLOCKS,
}
_DESTROYING: Final = (Wipe, BitFlip, Damage)

_NODE: Final = re.compile(r"(broker|register)(-\d+)?|any|active|standby|(leader|follower)(/\d+)?")
"""The targets that can be told from outside."""
_PEER: Final = re.compile(rf"others|client|{_NODE.pattern}")

_OPTIONS: Final[dict[str, str]] = {
    "retention_bytes": "nothing is removed by retention",
    "retention_ms": "nothing is removed by retention",
    "cut_off": "everything is healed in the end",
    "loses_all": "no machine loses its power",
    "loses_last": "an intact copy of each log is spared",
    "spoils_disks": "no disk is full or fails",
    "without_register": "the register is started again like every node",
    "others_hang": "no disk is full or fails",
    "stops_each": "brokers are not asked to stop once more in the end",
    "sheds": "leaderships move by load as slowly as in the product",
}
"""Options that processes don't follow, with what holds instead."""
_WORKLOAD: Final[dict[str, str]] = {
    "chores": "no operator changes anything meanwhile",
    "polls": "no fetches wait beside producers",
    "opaque_records": "all messages are version 2 records",
    "members": "there is no durable subscription",
    "pipes": "there is no durable subscription",
    "named_producers": "no producer has a name",
    "forwarding_producers": "all producers go to the leaders",
    "relay_topics": "all topics are in logs",
    "reopen_count": "no client is closed and opened again",
    "starts_late": "all consumers begin at the beginning",
}


@attrs.frozen
class RealFault:
    """A fault of the plan, whose place can be seen from outside."""

    fault: InjectedFault
    is_possible: bool
    """Whether its action is; if not, only its place is waited for."""


@attrs.frozen
class RealPlan:
    """What of a plan happens to processes."""

    plan: Plan
    chains: tuple[tuple[RealFault, ...], ...]
    """Faults by what they wait for: each one waits for the one before it in its chain."""
    left_out: tuple[str, ...]
    """What is left out and why, a line each."""

    @property
    def fault_count(self) -> int:
        """How many faults may strike."""
        return sum(one.is_possible for chain in self.chains for one in chain)


def translate(plan: Plan) -> RealPlan:
    """Divide *plan* into what can happen to processes, and what is left out."""
    left_out = [*_options_left_out(plan), *_options_left_out(plan.workload)]
    chains: list[list[RealFault]] = []
    is_seen = True
    for number, fault in enumerate(plan.faults):
        behind = number > 0 and getattr(fault.place, "behind", False)
        if behind and not is_seen:
            left_out.append(f"{fault}: the fault before it is left out, and it waits for that")
            continue
        why = _place_unseen(fault) or ("" if behind else _nobody_here(fault))
        is_seen = not why
        if why:
            left_out.append(f"{fault}: {why}")
            continue
        why = _action_impossible(plan, fault)
        if why:
            left_out.append(f"{fault}: {why}")
        if not behind:
            chains.append([])
        chains[-1].append(RealFault(fault, not why))
    possible = [chain for chain in chains if any(one.is_possible for one in chain)]
    return RealPlan(plan, tuple(map(tuple, possible)), tuple(left_out))


def _options_left_out(options: Plan | WorkloadOptions) -> list[str]:
    texts = _OPTIONS if isinstance(options, Plan) else _WORKLOAD
    return [
        f"{field.name} = {getattr(options, field.name)!r}: {texts[field.name]}"
        for field in attrs.fields(type(options))
        if texts.get(field.name) and getattr(options, field.name) != field.default
    ]


def _place_unseen(fault: InjectedFault) -> str:
    match fault.place:
        case AtStep() | AtEffect():
            return "a step or a call inside a process can't be seen from outside"
        case When("lag"):
            return "what a leader has not committed can't be seen from outside"
    return ""


def _nobody_here(fault: InjectedFault) -> str:
    if fault.target == "here" and isinstance(fault.place, AtTime | When):
        return "it doesn't follow another fault, so nobody is here"
    return ""


def _action_impossible(plan: Plan, fault: InjectedFault) -> str:
    action = fault.action
    checks: tuple[Callable[[], str], ...] = (
        lambda: _IMPOSSIBLE.get(type(action), ""),
        lambda: _target_unknown(fault.target),
        lambda: _peer_unknown(action),
        lambda: _damage_impossible(plan, fault),
    )
    return next(filter(None, (check() for check in checks)), "")


def _target_unknown(target: str) -> str:
    if target == "here" or _NODE.fullmatch(target):
        return ""
    if target.startswith("client") or target.partition("-")[0] in {"producer", "consumer"}:
        return "clients run in the process that drives the others"
    return f"nobody can tell from outside who is {target!r}"


def _peer_unknown(action: object) -> str:
    if isinstance(action, Reset) and action.link:
        return "the links of one process can't be told from each other"
    if isinstance(action, Cut | Reset) and not _PEER.fullmatch(action.peer):
        return f"nobody can tell from outside who is {action.peer!r}"
    return ""


def _damage_impossible(plan: Plan, fault: InjectedFault) -> str:
    action = fault.action
    if not isinstance(action, _DESTROYING):
        return ""
    if plan.founders:
        return "brokers without a register keep the decisions on the same disks"
    if fault.target in {"register", "active", "standby"} or fault.target.startswith("register-"):
        return "only files of brokers are damaged"
    if isinstance(action, Damage) and action.harm == "older":
        return _IMPOSSIBLE[RollBack]
    if isinstance(action, Damage) and action.part == "journal":
        return "only files of brokers are damaged"
    return ""
