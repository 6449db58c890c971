"""Redis Streams: one server, or one with two replicas; the client is redis-py with hiredis."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.client import Gate, age_s, spread, stamped
from benchmarks.processes import running, wait_for_port
from benchmarks.systems import Serving, not_installed
from octopi.cli.free_ports import free_ports

TITLE: Final = "Redis Streams"
KINDS: Final = frozenset({"produce", "consume", "queue", "request", "latency"})
_PIPELINE: Final = 200
_WAIT_MS: Final = 60_000


def missing() -> str | None:
    """Why this system can't be measured; None: it can."""
    return not_installed(
        "redis-server",
        {"redis": "redis", "hiredis": "hiredis"},
        "Debian: apt-get install redis-server",
    )


@contextmanager
def serving(
    directory: Path, replicas: int, flush_before_ack: bool, *, in_file: bool = True
) -> Iterator[Serving]:
    """Run the servers within the block; without *in_file* they keep everything in memory."""
    version = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]
    flushing = "always" if flush_before_ack else "everysec"
    with ExitStack() as servers:
        pids = {}
        ports = free_ports(replicas)
        for number, port in enumerate(ports):
            name = f"redis-{number + 1}"
            folder = directory / name
            folder.mkdir()
            options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
            options += ["--appendonly", "yes" if in_file else "no"]
            options += ["--appendfsync", flushing, "--save", ""]
            if number:
                options += ["--replicaof", f"127.0.0.1 {ports[0]}", "--repl-diskless-sync-delay"]
                options += ["0"]
            process = servers.enter_context(
                running(["redis-server", *options], directory / f"{name}.log")
            )
            wait_for_port(port, process)
            pids[name] = process.pid
        _wait_for_replicas(ports[0], replicas - 1)
        yield Serving(
            f"127.0.0.1:{ports[0]}",
            pids,
            version.removeprefix("v="),
            (f"appendonly, fsync {flushing}" if in_file else "no appendonly")
            + f"; pipelines of {_PIPELINE} XADD, XREAD COUNT 1000"
            + (f"; WAIT {replicas - 1} after each pipeline" if in_file and replicas > 1 else ""),
        )


def _wait_for_replicas(port: int, count: int) -> None:
    import redis

    with redis.Redis("127.0.0.1", port) as connection:
        connection.xadd("warm", {"v": b"1"})
        if connection.wait(count, _WAIT_MS) < count:
            raise RuntimeError("its replicas did not acknowledge in time")


def run(role: str, access: Gate, parameters: dict[str, Any]) -> dict[str, float] | None:
    """Run a client process in *role*; return its figures, if it has any."""
    import redis

    host, _, port = parameters.pop("address").partition(":")
    parameters.pop("flush_before_ack", None)  # this is a setting of the server
    roles = {
        "produce": _produce,
        "consume": _consume,
        "work_off": _work_off,
        "request": _request,
        "pace": _pace,
        "receive": _receive,
    }
    with redis.Redis(host, int(port), decode_responses=False) as connection:
        connection.ping()
        return roles[role](access, connection, **parameters)  # type: ignore[operator,no-any-return]


def _produce(
    access: Gate,
    connection: Any,
    topic: str,
    size: int,
    count: int,
    replicas: int = 1,
) -> None:
    fields = {b"v": bytes(size)}
    access.wait()
    for begin in range(0, count, _PIPELINE):
        pipeline = connection.pipeline(transaction=False)
        for _ in range(min(_PIPELINE, count - begin)):
            pipeline.xadd(topic, fields)
        if replicas > 1:
            pipeline.execute_command("WAIT", replicas - 1, _WAIT_MS)
        pipeline.execute()


def _consume(access: Gate, connection: Any, topic: str, size: int, count: int) -> None:
    access.wait()
    seen, last = 0, b"0"
    while seen < count:
        [(_, entries)] = connection.xread({topic: last}, count=1000)
        for last, fields in entries:  # noqa: B007
            seen += len(fields[b"v"]) == size


def _work_off(
    access: Gate,
    connection: Any,
    topic: str,
    size: int,
    count: int,
    group: str,
    replicas: int = 1,
) -> None:
    connection.xgroup_create(topic, group, id="0")
    access.wait()
    seen = 0
    while seen < count:
        [(_, entries)] = connection.xreadgroup(group, "worker", {topic: ">"}, count=1000)
        seen += sum(len(fields[b"v"]) == size for _, fields in entries)
        pipeline = connection.pipeline(transaction=False)
        pipeline.xack(topic, group, *(number for number, _ in entries))
        if replicas > 1:
            pipeline.execute_command("WAIT", replicas - 1, _WAIT_MS)
        pipeline.execute()


def _request(
    access: Gate,
    connection: Any,
    topic: str,
    size: int,
    count: int,
    replicas: int = 1,
) -> dict[str, float]:
    fields = {b"v": bytes(size)}
    latencies = []
    connection.xadd(topic, fields)
    access.wait()
    for _ in range(count):
        began = time.perf_counter()
        if replicas > 1:
            pipeline = connection.pipeline(transaction=False)
            pipeline.xadd(topic, fields)
            pipeline.execute_command("WAIT", replicas - 1, _WAIT_MS)
            pipeline.execute()
        else:
            connection.xadd(topic, fields)
        latencies.append(time.perf_counter() - began)
    return spread(latencies)


def _pace(
    access: Gate,
    connection: Any,
    topic: str,
    size: int,
    count: int,
    rate: int,
) -> None:
    access.wait()
    begin = time.perf_counter()
    for number in range(count):
        wait_s = begin + number / rate - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        connection.xadd(topic, {b"v": stamped(size)})


def _receive(
    access: Gate,
    connection: Any,
    topic: str,
    size: int,
    count: int,
) -> dict[str, float]:
    latencies: list[float] = []
    last = b"0"
    access.wait()
    while len(latencies) < count:
        for _, entries in connection.xread({topic: last}, count=1000, block=1000):
            for last, fields in entries:  # noqa: B007
                latencies.append(age_s(fields[b"v"]))
    return spread(latencies)
