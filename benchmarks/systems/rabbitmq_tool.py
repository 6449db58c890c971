"""RabbitMQ Streams measured by stream-perf-test, which is written in Java, on the server of
`benchmarks.systems.rabbitmq`.

``OCTOPI_BENCH_STREAM_PERF_TEST`` names the jar, which is among the releases of
rabbitmq-stream-perf-test.
"""

from __future__ import annotations

import os
from typing import Any, Final

from benchmarks.client import Gate
from benchmarks.systems import not_installed, rabbitmq
from benchmarks.systems.own_tool import number_in, output_of, took_s

TITLE: Final = "RabbitMQ, stream-perf-test (Java)"
KINDS: Final = frozenset({"produce", "consume"})
SERVED_BY: Final = "rabbitmq"
DIFFERS: Final = (
    "The tool wraps each message as AMQP 1.0, which the Python client is told to leave out. The "
    "rate leaves out the start of Java, but not that Java compiles the program meanwhile; "
    "processor time and page faults have both."
)
JAR: Final = "OCTOPI_BENCH_STREAM_PERF_TEST"


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    why = rabbitmq.missing() or not_installed("java", {})
    if why is None and not os.path.isfile(os.environ.get(JAR, "")):
        return f"the variable {JAR} doesn't name the jar of stream-perf-test"
    return why


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    count = parameters["count"]
    address = f"rabbitmq-stream://guest:guest@{parameters['address']}/%2f"
    command = ["java", "-jar", os.environ[JAR], "--uris", address]
    command += ["--streams", parameters["topic"], "--size", str(parameters["size"])]
    if role == "produce":
        command += ["--producers", "1", "--consumers", "0", "--pmessages", str(count)]
        rate = number_in(r"Summary: .*\bconfirmed NUMBER msg/s", output_of(access, command))
    else:
        command += ["--producers", "0", "--consumers", "1", "--cmessages", str(count)]
        output = output_of(access, [*command, "--offset", "first"])
        rate = number_in(r"Summary: .*\bconsumed NUMBER msg/s", output)
    return took_s(count, rate)
