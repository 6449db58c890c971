"""Redis measured by redis-benchmark, which is written in C, on the servers of
`benchmarks.systems.redis`."""

from __future__ import annotations

import shutil
from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import not_installed, redis
from benchmarks.systems.own_tool import output_of, took_s
from benchmarks.workloads import Workload

TITLE: Final = "Redis, redis-benchmark (C)"
KINDS: Final = frozenset({"produce", "consume", "request"})
SERVED_BY: Final = "redis"
DIFFERS: Final = (
    "The tool sends one command over and over, made once, and drops what is answered. When it "
    "consumes, it reads the first 1,000 entries of the stream each time."
)
_PIPELINE: Final = 200
_READ: Final = 1000


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    return redis.missing() or not_installed(
        "redis-benchmark", {}, "Debian: apt-get install redis-tools"
    )


def runs(workload: Workload) -> bool:
    """Whether the tool can do the work: it can't wait for replicas after a pipeline."""
    return workload.replicas == 1


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    topic, count = parameters["topic"], parameters["count"]
    add = ["XADD", topic, "*", "v", "x" * parameters["size"]]
    match role:
        case "produce":
            rate, _, _ = _measured(access, parameters, count, _PIPELINE, add)
            return took_s(count, rate)
        case "consume":
            read = ["XREAD", "COUNT", str(_READ), "STREAMS", topic, "0"]
            rate, _, _ = _measured(access, parameters, count // _READ, 1, read)
            return took_s(count, rate * _READ)
        case _:
            rate, p50_us, p99_us = _measured(access, parameters, count, 1, add)
            return {**took_s(count, rate), "p50_us": p50_us, "p99_us": p99_us}


def _measured(
    access: Gate, parameters: dict[str, Any], count: int, pipeline: int, command: list[str]
) -> tuple[float, float, float]:
    host, _, port = parameters["address"].partition(":")
    program = shutil.which("redis-benchmark") or "redis-benchmark"
    options = ["-h", host, "-p", port, "-c", "1", "-n", str(count), "-P", str(pipeline), "--csv"]
    return commands_per_s(output_of(access, [program, *options, *command]))


def commands_per_s(output: str) -> tuple[float, float, float]:
    """Commands a second and the median and the 99th percentile of their times, in microseconds.

    *output* has a line of CSV: the command, commands a second, and times in milliseconds (mean,
    least, 50 %, 95 %, 99 %, most).

    Raises:
      RuntimeError: if there is no such line.
    """
    fields = [one.strip('"') for one in output.strip().rpartition("\n")[2].rsplit(",", 7)]
    try:
        rate, _, _, p50_ms, _, p99_ms, _ = map(float, fields[1:])
    except ValueError:
        raise RuntimeError(f"redis-benchmark printed no figures: {output[-300:]}") from None
    return rate, p50_ms * 1e3, p99_ms * 1e3
