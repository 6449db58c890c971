"""One client process of a measurement: ``python -m benchmarks.client SYSTEM ROLE PARAMETERS``.

The parameters are JSON.  `benchmarks.processes` says what the process prints and when it begins.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from collections.abc import Iterable
from typing import Any

import attrs


@attrs.frozen
class Usage:
    """What this process has used so far, and those of its children that have ended: a peer's own
    tool is one."""

    cpu_s: float
    minor_faults: int

    @classmethod
    def now(cls) -> Usage:
        both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(
            cpu_s=sum(one.ru_utime + one.ru_stime for one in both),
            minor_faults=sum(one.ru_minflt for one in both),
        )


@attrs.define
class Gate:
    """Holds a client back until all others are connected.  Its times count from then on."""

    opened_at: float = 0.0
    _used: Usage = Usage(0.0, 0)

    def wait(self) -> None:
        """Report that this client is ready, and wait for the signal to begin."""
        print("ready", flush=True)
        sys.stdin.readline()
        self._used = Usage.now()
        self.opened_at = time.perf_counter()

    def figures(self, **more: float) -> dict[str, float]:
        """The wall time and the processor time since `wait` returned, in seconds, the minor page
        faults, and *more*, which may replace some of these."""
        wall_s, used = time.perf_counter() - self.opened_at, Usage.now()
        return {
            "wall_s": wall_s,
            "cpu_s": used.cpu_s - self._used.cpu_s,
            "minor_faults": used.minor_faults - self._used.minor_faults,
            **more,
        }


def spread(latencies_s: Iterable[float]) -> dict[str, float]:
    """The median and the 99th percentile of *latencies_s*, in microseconds."""
    ordered = sorted(latencies_s)
    return {
        "p50_us": ordered[len(ordered) // 2] * 1e6,
        "p99_us": ordered[len(ordered) * 99 // 100] * 1e6,
    }


def stamped(size_bytes: int) -> bytes:
    """A message that begins with the time at which it was made, by the machine's monotonic
    clock."""
    return time.perf_counter_ns().to_bytes(8, "big") + bytes(size_bytes - 8)


def age_s(message: bytes) -> float:
    """The seconds since `stamped` made *message*."""
    return (time.perf_counter_ns() - int.from_bytes(message[:8], "big")) / 1e9


def main() -> None:
    system, role, parameters = sys.argv[1:]
    module = importlib.import_module(f"benchmarks.systems.{system}")
    arguments: dict[str, Any] = json.loads(parameters)
    access = Gate()
    figures = module.run(role, access, arguments)
    print(json.dumps(access.figures(**(figures or {}))))


if __name__ == "__main__":
    main()
