"""Kafka measured by its own tools, kafka-producer-perf-test and kafka-consumer-perf-test, which are
written in Java, on the servers of `benchmarks.systems.kafka`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import kafka
from benchmarks.systems.own_tool import number_in, output_of, took_s

TITLE: Final = "Kafka, its perf-test tools (Java)"
KINDS: Final = frozenset({"produce", "consume"})
SERVED_BY: Final = "kafka"
DIFFERS: Final = (
    "The rate leaves out the start of Java and, when it consumes, joining a group, but not that "
    "Java compiles the program meanwhile. Processor time and page faults have all of it, which "
    "weighs much for so few messages."
)
_TOOLS: Final = "org.apache.kafka.tools"


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    why = kafka.missing()
    if why is not None:
        return why
    if not list(Path(os.environ[kafka.JARS]).glob("kafka-tools-*.jar")):
        return f"{kafka.JARS} has no kafka-tools jar (the Maven artifact kafka-tools)"
    return None


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    address, topic, count = parameters["address"], parameters["topic"], parameters["count"]
    java = ["java", "-Xmx1g", "-cp", f"{os.environ[kafka.JARS]}/*"]
    if role == "produce":
        kafka.make_topic(address, topic, parameters.get("replicas", 1))
        tool = [f"{_TOOLS}.ProducerPerformance", "--topic", topic, "--throughput", "-1"]
        tool += ["--num-records", str(count), "--record-size", str(parameters["size"])]
        tool += ["--producer-props", f"bootstrap.servers={address}", "acks=all"]
        tool += [f"linger.ms={kafka.LINGER_MS}", f"batch.size={kafka.BATCH_BYTES}"]
        tool += [f"buffer.memory={256 << 20}"]
        return took_s(count, number_in(r"NUMBER records/sec", output_of(access, [*java, *tool])))
    tool = [f"{_TOOLS}.ConsumerPerformance", "--topic", topic, "--hide-header"]
    tool += ["--bootstrap-server", address, "--messages", str(count)]
    return took_s(count, consumed_per_s(output_of(access, [*java, *tool])))


def consumed_per_s(output: str) -> float:
    """Messages a second without joining a group: the last field of the last line of CSV.

    Raises:
      RuntimeError: if there is no such line.
    """
    lines = [line for line in output.strip().splitlines() if line.count(",") == 9]
    try:
        return float(lines[-1].rpartition(",")[2])
    except (IndexError, ValueError):
        raise RuntimeError(f"kafka-consumer-perf-test printed no rate: {output[-300:]}") from None
