"""Reports the results, as a table for people and as JSON for programs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs

from benchmarks.runner import Result, module_of

_CLIENTS = ("trio", "trio-websocket", "nats-py", "redis", "hiredis", "rstream")


def machine() -> dict[str, Any]:
    """The machine, the commit, and the versions of Python and of the clients."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": _commit(),
        "load_average": round(os.getloadavg()[0], 2),
        "clients": {name: version for name in _CLIENTS if (version := _version(name))},
    }


def document(results: Iterable[Result]) -> list[dict[str, Any]]:
    """All figures, for JSON."""
    return [attrs.asdict(one) for one in results]


def table(results: list[Result]) -> str:
    """A line for each workload and system.  A ratio above 1 means that Octopi is ahead."""
    lines = [
        f"{'':<54}{'/s':>11}{'p50 us':>9}{'p99 us':>9}{'us/msg':>8}{'servers':>8}{'Octopi':>8}"
    ]
    for name in dict.fromkeys(one.workload.name for one in results):
        of_workload = [one for one in results if one.workload.name == name]
        ours = next((one for one in of_workload if one.system == "octopi"), None)
        goal = of_workload[0].workload.goal
        lines.append(name + (f"   (goal: {goal})" if goal else ""))
        lines += [_line(one, ours) for one in of_workload]
    return "\n".join(lines)


def ahead(ours: Result, theirs: Result) -> dict[str, float]:
    """The factor by which Octopi is ahead in each figure.  Above 1, Octopi is faster."""
    found = {}
    if ours.rates and theirs.rates:
        found["rate"] = statistics.median(ours.rates) / statistics.median(theirs.rates)
    for name in ("p50_us", "p99_us"):
        if getattr(ours, name) and getattr(theirs, name):
            found[name] = _median(theirs, name) / _median(ours, name)
    return found


def _line(one: Result, ours: Result | None) -> str:
    title = f"  {module_of(one.system).TITLE}"
    if one.problem:
        return f"{title:<54}failed: {one.problem}"
    ratio = ""
    if ours is not None and one is not ours and not ours.problem:
        factors = ahead(ours, one)
        keys = ("p50_us", "p99_us") if "p50_us" in factors else ("rate",)
        ratio = " ".join(f"{factors[key]:.2f}x" for key in keys)
    rate = "" if one.p50_us else f"{statistics.median(one.rates):,.0f}"
    figures = [rate]
    figures += [f"{_median(one, key):,.0f}" if one.p50_us else "" for key in ("p50_us", "p99_us")]
    cpu = [f"{_median(one, key):.2f}" for key in ("client_cpu_us", "server_cpu_us")]
    return (
        f"{title:<54}{figures[0]:>11}{figures[1]:>9}{figures[2]:>9}{cpu[0]:>8}{cpu[1]:>8}  {ratio}"
    )


def _median(result: Result, name: str) -> float:
    figures: list[float] = getattr(result, name)
    return statistics.median(figures)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip() or "unknown"
