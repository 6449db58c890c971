"""The rates that the peers' own tools print are read as they print them."""

from __future__ import annotations

import pytest

from benchmarks.systems import NAMES, OWN_TOOLS, module_of, server_of, takes_part
from benchmarks.systems.kafka_tool import consumed_per_s
from benchmarks.systems.own_tool import number_in, took_s
from benchmarks.systems.redis_tool import commands_per_s
from benchmarks.workloads import load

REDIS = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms",'
    '"p99_latency_ms","max_latency_ms"\n'
    '"XADD topic-1 * v xx,""x""","12820.51","0.062","0.024","0.055","0.095","0.231","8.295"\n'
)
PRODUCED = """\
24998 records sent, 4999.6 records/sec (0.48 MB/sec), 4.0 ms avg latency, 25.0 ms max latency.
60000 records sent, 61349.693252 records/sec (59.91 MB/sec), 12.10 ms avg latency, 231.00 ms max \
latency, 8 ms 50th, 41 ms 95th, 52 ms 99th, 54 ms 99.9th.
"""
CONSUMED = (
    "WARN a group without members, again\n"
    "2026-01-01 10:00:00:001, 2026-01-01 10:00:04:411, 58.5938, 13.2866, 60000, 13605.4422, 3239, "
    "1171, 50.0374, 51238.2579\n"
)
NATS = (
    "10:00:00 Starting JetStream asynchronous publisher\n\nNATS stats: 1,145,452 msgs/sec ~ 1 GiB\n"
)
RABBITMQ = (
    "1, published 4 msg/s, confirmed 3 msg/s\n"
    "Summary: published 220100 msg/s, confirmed 219900 msg/s, consumed 7 msg/s, latency 95th 8 ms, "
    "chunk size 3042\n"
)


def test_redis_benchmark_prints_csv() -> None:
    assert commands_per_s(REDIS) == pytest.approx((12820.51, 55.0, 231.0))


def test_the_other_tools_print_sentences() -> None:
    assert number_in("NUMBER records/sec", PRODUCED) == 61349.693252
    assert consumed_per_s(CONSUMED) == 51238.2579
    assert number_in("NUMBER msgs/sec", NATS) == 1_145_452
    assert number_in(r"Summary: .*\bconfirmed NUMBER msg/s", RABBITMQ) == 219_900
    assert number_in(r"Summary: .*\bconsumed NUMBER msg/s", RABBITMQ) == 7


def test_a_tool_that_prints_something_else_has_failed() -> None:
    with pytest.raises(RuntimeError, match="no rate: Unknown option"):
        number_in("NUMBER msgs/sec", "Unknown option\n")
    with pytest.raises(RuntimeError, match="printed no figures"):
        commands_per_s("Could not connect\n")
    with pytest.raises(RuntimeError, match="printed no rate"):
        consumed_per_s("WARNING: Exiting before consuming the expected number of messages\n")
    with pytest.raises(RuntimeError, match="a rate of 0"):
        took_s(100, 0.0)


def test_a_client_gets_the_time_that_the_tool_measured() -> None:
    assert took_s(60_000, 30_000.0) == {"wall_s": 2.0}


def test_each_tool_works_on_its_peers_servers_and_says_how_it_differs() -> None:
    for name in OWN_TOOLS:
        assert server_of(name) == name.removesuffix("_tool")
        assert module_of(name).DIFFERS
        assert module_of(name).KINDS <= module_of(server_of(name)).KINDS


def test_each_system_takes_part_in_a_workload_and_each_workload_has_octopi() -> None:
    workloads = load()
    for name in NAMES:
        assert any(takes_part(name, one) for one in workloads), name
    assert all(takes_part("octopi", one) for one in workloads)
    replicated = [one for one in workloads if one.replicas > 1]
    assert not any(takes_part("redis_tool", one) for one in replicated)
