"""The results of a run: one JSON document, which is written anew after each measurement.

So a run that is interrupted, or fails, leaves all that it had measured.  The document is a `Run`
with the names and units of the attributes below; ``format`` is `FORMAT`.  Attributes that are None
are ``null``: a system that didn't answer has no figures, and a paced workload has no rate.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from benchmarks.goals import Figure
from benchmarks.machine_load import Load, Program
from benchmarks.workloads import Workload

FORMAT: Final = 1
"""Another number means that attributes have other names or meanings."""

Ending = Literal["", "complete", "interrupted"]


@attrs.frozen
class Measurement:
    """What one system did in one round of one workload."""

    workload: str
    system: str
    round: int
    """From 0.  Systems are compared within a round."""
    turn: int
    """The place of the system in the order of this round, from 0."""
    began_at: str
    """ISO 8601, in UTC."""
    load: Load
    """The work of others while clients started, worked and ended."""
    busy: tuple[str, ...] = ()
    """Why the machine was busy meanwhile; empty: it was quiet."""
    problem: str = ""
    """Why there are no figures; the system ran no further round of the workload."""
    wall_s: float | None = None
    rate: float | None = None
    """Messages a second; delivered messages, if there are subscribers."""
    p50_us: float | None = None
    p99_us: float | None = None
    client_cpu_us: float | None = None
    """The processor time of all clients together for a message."""
    server_cpu_us: float | None = None
    """The same of all servers."""
    client_faults: float | None = None
    """The minor page faults of all clients for a message (``ru_minflt``): memory that they got from
    the system and hadn't had before."""
    server_faults: float | None = None
    """The same of all servers."""
    cores: Mapping[str, float] = attrs.field(factory=dict)
    """For each server, and for all clients together: processor time divided by wall time."""

    def figure(self, name: Figure) -> float | None:
        """The figure that a goal names."""
        match name:
            case "rate":
                return self.rate
            case "p50":
                return self.p50_us
            case "p99":
                return self.p99_us
            case "cpu":
                if self.client_cpu_us is None or self.server_cpu_us is None:
                    return None
                return self.client_cpu_us + self.server_cpu_us


@attrs.frozen
class Participant:
    """A system that took part in a workload."""

    workload: str
    system: str
    title: str
    version: str
    settings: str
    """The settings that aren't defaults, for people to read."""
    server: str
    """The system whose servers it used: its own, or those that it shares."""
    differs: str = ""
    """In what its work isn't that of the others; empty: it is the same."""


@attrs.frozen
class LeftOut:
    """A system that wasn't measured, and why."""

    system: str
    reason: str
    workload: str = ""
    """Only there; empty: nowhere."""


@attrs.define
class Run:
    """All results of a run."""

    began_at: str
    machine: Mapping[str, Any]
    settings: Mapping[str, Any]
    at_rest: Load
    """The work of others before the first round."""
    busy_at_rest: tuple[str, ...] = ()
    """Why the machine was busy before the first round; empty: it was quiet."""
    workloads: list[Workload] = attrs.field(factory=list)
    participants: list[Participant] = attrs.field(factory=list)
    left_out: list[LeftOut] = attrs.field(factory=list)
    measurements: list[Measurement] = attrs.field(factory=list)
    ended: Ending = ""
    """Empty: it is still running, or was killed."""

    def of(self, workload: str, system: str) -> list[Measurement]:
        """The measurements of *system* in *workload*, in their order."""
        return [
            one
            for one in self.measurements
            if one.workload == workload and one.system == system and not one.problem
        ]

    def participants_of(self, workload: str) -> list[Participant]:
        """The systems that took part in *workload*."""
        return [one for one in self.participants if one.workload == workload]


def save(run: Run, path: Path) -> None:
    """Write *run* to *path*, which has either the former results or these, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": FORMAT, **attrs.asdict(run)}, indent=1)
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text + "\n", encoding="utf-8")
    os.replace(beside, path)


def load(path: Path) -> Run:
    """Read what `save` wrote.

    Raises:
      OSError: if the file can't be read.
      ValueError: if it has no results, or those of another version of this program.
    """
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        written_by = document.pop("format")
    except (UnicodeDecodeError, json.JSONDecodeError, TypeError, AttributeError, KeyError):
        raise ValueError(f"{path} has no results of `python -m benchmarks`") from None
    if written_by != FORMAT:
        raise ValueError(
            f"{path} has results of another version of this program (format {written_by}, not "
            f"{FORMAT}): use the commit that it names"
        )
    try:
        return _run(document)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} has incomplete results: {error}") from None


def _run(document: dict[str, Any]) -> Run:
    workloads = [
        Workload(**{**one, "systems": tuple(one["systems"]), "goals": tuple(one["goals"])})
        for one in document["workloads"]
    ]
    measurements = [
        Measurement(**{**one, "load": _load(one["load"]), "busy": tuple(one["busy"])})
        for one in document["measurements"]
    ]
    return Run(
        **{
            **document,
            "at_rest": _load(document["at_rest"]),
            "busy_at_rest": tuple(document["busy_at_rest"]),
            "workloads": workloads,
            "participants": [Participant(**one) for one in document["participants"]],
            "left_out": [LeftOut(**one) for one in document["left_out"]],
            "measurements": measurements,
        }
    )


def _load(document: dict[str, Any]) -> Load:
    busiest = tuple(Program(**one) for one in document["busiest"])
    return Load(**{**document, "busiest": busiest})
