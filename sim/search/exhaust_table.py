"""The report of an exhaustive search, as text and as data."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any, Final

from octopi.cli.rendering import aligned, counted
from octopi.simulation.faults.actions import STEPS
from sim.search.exhaust import Exhaustion
from sim.search.exhaust_cells import EFFECT_ACTIONS, STEP_ACTIONS, Cell, actions, cells, impossible
from sim.search.parallel_runs import replay_line

_FAILED: Final = "!"
_IMPOSSIBLE: Final = "-"
_LEFT_OUT: Final = "."

_LEGEND: Final = (
    "Numbers say at how many moments it was done; "
    f"{_FAILED}: a promise was broken; {_IMPOSSIBLE}: can't happen, see below; "
    f"{_LEFT_OUT}: in another part."
)


def report(search: Exhaustion) -> str:
    """The report as text: two tables, the impossible actions with reasons, the missing ones, and a
    summary."""
    parts = [_LEGEND]
    for title, is_step, columns in (
        ("Steps", True, STEP_ACTIONS),
        ("I/O", False, EFFECT_ACTIONS),
    ):
        rows = [_row(search, cell, columns) for cell in cells() if cell.is_step == is_step]
        right = [False, False, *(True for _ in columns)]
        parts.append(f"{title}\n{aligned([[title, 'who', *columns], *rows], right)}")
    parts.append("\n".join(["Can't happen", *_reasons()]))
    gaps = search.gaps()
    if gaps:
        parts.append("\n".join(["Missing", *(f"  {one}" for one in gaps)]))
    parts.append(summary(search))
    return "\n\n".join(parts)


def summary(search: Exhaustion) -> str:
    """How much was done, in one line."""
    places = [(cell, action) for cell in cells() for action in actions(cell)]
    never = sum(bool(impossible(*one)) for one in places)
    executed = sum(one.executed > 0 for one in search.done.values())
    possible = len(places) - never
    return (
        f"{executed:,} of {possible:,} cells ({executed / possible:.1%}), {never} can't happen; "
        f"{counted(search.runs, 'run')}, {len(search.failures)} failed, in "
        f"{monotonic() - search.began:.0f} s ({search.cpu_s:.0f} CPU s)"
    )


def _row(search: Exhaustion, cell: Cell, columns: tuple[str, ...]) -> list[str]:
    texts = [STEPS.get(cell.place, cell.place), cell.role]
    return texts + [
        _text(search, cell, action) if action in actions(cell) else "" for action in columns
    ]


def _text(search: Exhaustion, cell: Cell, action: str) -> str:
    done = search.done.get((cell, action))
    if (cell, action) in search.left_out:
        return _LEFT_OUT
    if done is None or not done.executed:
        return _IMPOSSIBLE if impossible(cell, action) else "0"
    return f"{_FAILED if done.failures else ''}{done.executed}"


def _reasons() -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for cell in cells():
        whys = {action: impossible(cell, action) for action in actions(cell)}
        for why in dict.fromkeys(filter(None, whys.values())):
            which = [action for action, given in whys.items() if given == why]
            name = str(cell) if len(which) == len(whys) else f"{cell}: {', '.join(which)}"
            by_reason.setdefault(why, []).append(name)
    for why, names in by_reason.items():
        yield f"  {'; '.join(names)}: {why}"


def numbers(search: Exhaustion) -> dict[str, Any]:
    """The report as data, for programs."""
    return {
        "summary": summary(search),
        "runs": search.runs,
        "cpu_s": round(search.cpu_s, 3),
        "missing": search.gaps(),
        "failures": [
            {
                "place": one.cell.place,
                "role": one.cell.role,
                "action": one.action,
                "rule": one.rule,
                "text": one.text,
                "replay": replay_line(one.token),
            }
            for one in search.failures
        ],
        "cells": [_cell(search, cell, action) for cell in cells() for action in actions(cell)],
    }


def _cell(search: Exhaustion, cell: Cell, action: str) -> dict[str, Any]:
    done = search.done.get((cell, action))
    return {
        "place": cell.place,
        "role": cell.role,
        "action": action,
        "executed": done.executed if done else 0,
        "failed": len(done.failures) if done else 0,
        "skipped": sorted(set(done.skipped)) if done else [],
        "impossible": impossible(cell, action),
    }
