"""Whether the machine is quiet is judged from what the system counts."""

from __future__ import annotations

import pytest

from benchmarks.machine_load import (
    Load,
    ProcessTimes,
    Reading,
    load_between,
    process_times,
    reading,
    reasons,
)

OURS, CHILD, OTHER, KERNEL = 100, 101, 500, 2
PRESSURE = "some avg10=9.10 avg60=1.00 avg300=0.40 total={}\nfull avg10=0.00 total=7\n"


def stat_of(
    pid: int, parent: int, *, own: int, children: int = 0, name: str = "python", flags: int = 0
) -> str:
    return (
        f"{pid} ({name}) S {parent} 1 1 0 -1 {flags} 77 88 1 0 {own - 1} 1 {children} 0 20 0 1 0 "
        "4242 9000 300"
    )


def machine(
    at_s: float,
    *,
    busy: int,
    idle: int,
    stolen: int = 0,
    waiting_us: int = 0,
    processes: list[ProcessTimes],
) -> Reading:
    text = f"cpu  {busy - 40} 10 10 {idle - 5} 5 10 10 {stolen} 999 999\ncpu0 1 1 1 1 1 1 1 1 1 1\n"
    return reading(at_s, text, PRESSURE.format(waiting_us), processes)


def test_the_name_of_a_process_may_have_spaces_and_brackets() -> None:
    found = process_times(stat_of(7, 3, own=30, children=12, name="my (odd) name"))
    assert found == ProcessTimes(7, 3, "my (odd) name", False, 30, 42, 77)


def test_the_time_of_the_benchmark_and_of_the_kernel_is_not_that_of_others() -> None:
    before = machine(
        10.0,
        busy=1000,
        idle=1000,
        processes=[
            process_times(stat_of(OURS, 1, own=50)),
            process_times(stat_of(CHILD, OURS, own=20)),
            process_times(stat_of(KERNEL, 0, own=10, flags=0x00208040, name="kworker")),
            process_times(stat_of(OTHER, 1, own=400, name="cc1")),
        ],
    )
    after = machine(
        12.0,
        busy=1300,
        idle=1100,
        processes=[
            # The child has ended; what it took in all is now among the parent's.
            process_times(stat_of(OURS, 1, own=60, children=180)),
            process_times(stat_of(KERNEL, 0, own=40, flags=0x00208040, name="kworker")),
            process_times(stat_of(OTHER, 1, own=480, name="cc1")),
        ],
    )
    load = load_between(before, after, [OURS])
    # 300 ticks: 170 of ours, 30 of the kernel, 80 of cc1, and 20 of a program that has ended.
    assert load.others == pytest.approx(100 / 400)
    [busiest] = load.busiest
    assert (busiest.name, busiest.pid) == ("cc1", OTHER)
    assert busiest.cores == pytest.approx(80 / 100 / 2.0)
    assert reasons(load, at_rest=False) == ["other programs take 25% of the processors"]


def test_servers_that_are_no_children_count_as_ours_when_they_are_named() -> None:
    def at(at_s: float, own: int) -> Reading:
        server = process_times(stat_of(OTHER, 1, own=own))
        return machine(at_s, busy=1000 + own, idle=1000, processes=[server])

    before, after = at(0.0, 10), at(1.0, 110)
    assert load_between(before, after, [OURS, OTHER]).others == 0.0
    assert load_between(before, after, [OURS]).others == 1.0


def test_the_host_of_a_virtual_machine_can_be_what_is_busy() -> None:
    before = machine(0.0, busy=1000, idle=1000, processes=[])
    after = machine(1.0, busy=1000, idle=1180, stolen=20, processes=[])
    [why] = reasons(load_between(before, after, [OURS]), at_rest=False)
    assert why == "other machines of the host take 10% of the processors"


def test_a_little_of_both_is_too_much_together() -> None:
    [why] = reasons(Load(others=0.03, stolen=0.04, waiting=0.0), at_rest=False)
    assert why == "other programs and machines take 7% of the processors"


def test_waiting_counts_only_while_the_benchmark_rests() -> None:
    before = machine(0.0, busy=1000, idle=1000, waiting_us=5_000_000, processes=[])
    after = machine(2.0, busy=1000, idle=1400, waiting_us=5_400_000, processes=[])
    load = load_between(before, after, [OURS])
    assert load.waiting == pytest.approx(0.2)
    assert reasons(load, at_rest=True) == ["programs wait for a processor 20% of the time"]
    assert reasons(load, at_rest=False) == []


def test_a_system_without_pressure_is_judged_by_what_it_counts() -> None:
    one = reading(0.0, "cpu 10 0 0 10 0 0 0 0\n", None, [])
    other = reading(1.0, "cpu 11 0 0 200 0 0 0 0\n", None, [])
    load = load_between(one, other, [OURS])
    assert load.waiting is None
    assert reasons(load, at_rest=True) == []


def test_a_machine_with_little_else_to_do_is_quiet() -> None:
    assert reasons(Load(others=0.02, stolen=0.01, waiting=0.04), at_rest=True) == []
