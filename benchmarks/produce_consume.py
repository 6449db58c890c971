"""Messages a second through one broker: produced with acknowledgement, then consumed.

Starts a register and a broker as processes, and uses the library as a program would.
Prints JSON on standard output.  Every figure is a median over `--runs` interleaved runs, and
stands beside the rate at which this Python builds and checks the same records without any
network, measured in the same run: the ratio of the two says more than either, because
machines differ and are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio

import octopi
from octopi.identifiers import Offset, PartitionId, ProducerEpoch, ProducerId, Sequence, TopicName
from octopi.record import NO_HEADERS, BatchBuilder, decode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=20, help="of values, per run and size")
    arguments = parser.parse_args()
    figures: dict[int, dict[str, list[float]]] = {
        size: {"produce": [], "consume": [], "build": [], "check": []} for size in (100, 1024)
    }
    with tempfile.TemporaryDirectory() as directory:
        register, url = start(directory, "register")
        broker, _ = start(directory, "broker", "--register", url)
        try:
            for run in range(arguments.runs):
                for size, figure in figures.items():
                    count = arguments.megabytes * 1_000_000 // size
                    build, check = without_network(size, count)
                    produce, consume = trio.run(through, url, f"bench-{size}-{run}", size, count)
                    figure["build"].append(build)
                    figure["check"].append(check)
                    figure["produce"].append(produce)
                    figure["consume"].append(consume)
                    print(f"run {run + 1}: {size} B done", file=sys.stderr)
        finally:
            for process in (broker, register):
                process.terminate()
                process.wait(20)
    print(
        json.dumps(
            {
                "machine": {
                    "cpus": os.cpu_count(),
                    "system": platform.platform(),
                    "python": platform.python_version(),
                },
                "octopi": octopi.__version__,
                "commit": commit(),
                "runs": arguments.runs,
                "messages_per_second": {
                    f"{size} B": {
                        name: round(statistics.median(rates)) for name, rates in figure.items()
                    }
                    for size, figure in figures.items()
                },
                "ratio_to_this_python": {
                    f"{size} B": {
                        "produce / build": ratio(figure["produce"], figure["build"]),
                        "consume / check": ratio(figure["consume"], figure["check"]),
                    }
                    for size, figure in figures.items()
                },
            },
            indent=2,
        )
    )


def start(directory: str, role: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start a node and wait until it prints its address."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "octopi_node",
            "--role",
            role,
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
            f"{directory}/{role}",
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


def without_network(size: int, count: int) -> tuple[float, float]:
    """Records built, and records checked and decoded, a second."""
    value = b"x" * size
    per_batch = max(1, 128 * 1024 // size)
    batches = max(1, count // per_batch // 4)
    data = b""
    began = time.perf_counter()
    for _ in range(batches):
        builder = BatchBuilder()
        for _ in range(per_batch):
            builder.add(value, None, NO_HEADERS, 1)
        data = builder.encode(ProducerId(bytes(16)), ProducerEpoch(0), Sequence(0))
    built = time.perf_counter()
    for _ in range(batches):
        decode(data, Offset(0), TopicName("t"), PartitionId(0))
    checked = time.perf_counter()
    total = batches * per_batch
    return total / (built - began), total / (checked - built)


async def through(url: str, topic: str, size: int, count: int) -> tuple[float, float]:
    """Messages produced and acknowledged, and consumed, a second."""
    value = b"x" * size
    async with octopi.connect(url) as client:
        await client.create_topic(topic)
        began = time.perf_counter()
        async with client.producer() as producer:
            for _ in range(count):
                await producer.submit(topic, value)
            await producer.flush()
        produced = time.perf_counter()
        seen = 0
        async with client.consumer(topic, start="earliest") as consumer:
            async for batch in consumer.batches():
                for message in batch:
                    seen += message.value == value
                if seen >= count:
                    break
        consumed = time.perf_counter()
    assert seen == count
    return count / (produced - began), count / (consumed - produced)


def ratio(rates: list[float], reference: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(rates, reference, strict=True)), 2)


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
