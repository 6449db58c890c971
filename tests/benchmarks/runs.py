"""Results of runs that never took place."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.machine_load import Load, Program
from benchmarks.results import LeftOut, Measurement, Participant, Run
from benchmarks.workloads import Workload

QUIET = Load(others=0.01, stolen=0.0, waiting=0.3)
BUSY = Load(0.4, 0.0, 0.9, (Program("cc1", 4711, 0.8),))


def produce(*goals: str, name: str = "produce 100 B") -> Workload:
    return Workload(name, "produce", 100, 200_000, goals=goals)


def one_by_one(*goals: str) -> Workload:
    return Workload("one by one", "request", 1024, 3_000, goals=goals)


def measured(workload: Workload, system: str, rates: Sequence[float]) -> list[Measurement]:
    """A measurement of each rate, one a round; processor time is 10 us for a message."""
    return [
        Measurement(
            workload=workload.name,
            system=system,
            round=number,
            turn=0,
            began_at="2026-01-01T00:00:00+00:00",
            load=QUIET,
            wall_s=1.0,
            rate=rate,
            client_cpu_us=4.0,
            server_cpu_us=6.0,
            client_faults=0.5,
            server_faults=0.25,
            cores={"clients": 0.9},
        )
        for number, rate in enumerate(rates)
    ]


def timed(workload: Workload, system: str, p50_us: Sequence[float]) -> list[Measurement]:
    """A measurement of each median, one a round; the 99th percentile is three times as long."""
    return [
        Measurement(
            workload=workload.name,
            system=system,
            round=number,
            turn=0,
            began_at="2026-01-01T00:00:00+00:00",
            load=QUIET,
            p50_us=one,
            p99_us=3 * one,
            client_cpu_us=1.0,
            server_cpu_us=1.0,
            client_faults=0.0,
            server_faults=0.0,
        )
        for number, one in enumerate(p50_us)
    ]


def run_of(*measurements: list[Measurement], workloads: Sequence[Workload]) -> Run:
    """A run with these measurements, on a quiet machine."""
    found = [one for some in measurements for one in some]
    took_part = dict.fromkeys((one.workload, one.system) for one in found)
    return Run(
        began_at="2026-01-01T00:00:00+00:00",
        machine={"cpus": 2, "processor": "a <fast> one", "clients": {"trio": "0.35"}},
        settings={"rounds": 3, "seed": 1, "busy": "refuse", "quick": False},
        at_rest=QUIET,
        workloads=list(workloads),
        participants=[
            Participant(workload, system, f"{system} & its client", "1.2", "defaults", system)
            for workload, system in took_part
        ],
        left_out=[LeftOut("kafka", "java is not installed")],
        measurements=found,
        ended="complete",
    )
