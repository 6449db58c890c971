"""The table of what happened when a program was struck at each of its points."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import attrs

from octopi.simulation.report.formatting import action_words
from octopi.testing.errors import MisuseError
from octopi.testing.planned_faults import PLAIN_FAULTS, PlannedFault
from octopi.testing.shrinking import signature

_KINDS = {type(action): kind for kind, action in PLAIN_FAULTS.items()}


@attrs.frozen
class PointOutcome:
    """The outcome of one run."""

    faults: tuple[PlannedFault, ...]
    error: BaseException | None

    @property
    def is_missed(self) -> bool:
        """Whether the test passed, but a fault couldn't strike."""
        return isinstance(self.error, MisuseError)


def table(outcomes: list[PointOutcome], hosts: Collection[str], pair_count: int) -> str:
    """The points and outcomes as text; *pair_count*: how many pairs of points there were."""
    single = [one for one in outcomes if len(one.faults) == 1]
    double = [one for one in outcomes if len(one.faults) == 2]
    kinds = list(dict.fromkeys(_kind(one.faults[0]) for one in single))
    rows: dict[tuple[str, str], dict[str, list[PointOutcome]]] = {}
    for one in single:
        fault = one.faults[0]
        row = rows.setdefault((fault.host, fault.step), {})
        row.setdefault(_kind(fault), []).append(one)
    lines = [("point", *kinds)]
    for (host, step), row in rows.items():
        name = f"{host}: {step}" if len(hosts) > 1 else step
        lines.append((name, *(_cell(row.get(kind, [])) for kind in kinds)))
    text = [f"crash points of {', '.join(hosts)}: {len(rows)} points, {len(outcomes)} runs"]
    text += _columns(lines)
    if double:
        tried = f"{len(double)} of {pair_count} pairs of points"
        text.append(f"killed twice, at {tried}: {_cell(double)}")
    return "\n".join([*text, *_failures(outcomes)])


def _failures(outcomes: Iterable[PointOutcome]) -> list[str]:
    """The different failures, each with its faults as code."""
    same: dict[str, list[PointOutcome]] = {}
    for one in outcomes:
        if one.error is not None and not one.is_missed:
            same.setdefault(signature(one.error), []).append(one)
    lines: list[str] = []
    for alike_in, alike in same.items():
        error = alike[0].error
        text = str(error).partition("\n")[0]
        shown = f"{type(error).__name__}: {text}" if text else alike_in
        lines.append(f"{len(alike)} times: {shown}")
        lines += [f"    {fault.code()}" for fault in alike[0].faults]
    return lines


def _kind(fault: PlannedFault) -> str:
    return _KINDS.get(type(fault.action)) or action_words(fault.action)


def _cell(outcomes: list[PointOutcome]) -> str:
    """How many of *outcomes* failed."""
    if not outcomes:
        return "-"
    struck = [one for one in outcomes if not one.is_missed]
    failed = sum(one.error is not None for one in struck)
    if failed:
        return f"FAILS {failed} of {len(struck)}"
    return f"{len(struck)} passed" if struck else "not struck"


def _columns(lines: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
