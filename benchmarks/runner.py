"""Runs workloads in turn: in each round each system runs the workload once, so that other work of
the machine affects all systems alike.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import attrs

from benchmarks.processes import Client, cpu_s
from benchmarks.systems import NAMES, Serving
from benchmarks.workloads import Workload

_MARK: Final = "end-of-the-measurement"


@attrs.define
class Result:
    """The figures of one system for one workload; a list has an entry for each round."""

    workload: Workload
    system: str
    settings: str
    version: str
    rates: list[float] = attrs.field(factory=list)
    """Messages per second; delivered messages, if there are subscribers."""
    p50_us: list[float] = attrs.field(factory=list)
    p99_us: list[float] = attrs.field(factory=list)
    client_cpu_us: list[float] = attrs.field(factory=list)
    """The processor time of all clients together per message, in microseconds."""
    server_cpu_us: list[float] = attrs.field(factory=list)
    """The same of all servers."""
    cpu_shares: dict[str, list[float]] = attrs.field(factory=dict)
    """For each server process, and for all clients together: processor time divided by wall
    time."""
    problem: str = ""
    """Why a round failed; the system runs no other round then."""


@attrs.define
class Runner:
    """Runs workloads.  Servers start with the first workload that needs them, and stay up."""

    directory: Path
    systems: list[str]
    _servers: ExitStack = attrs.field(factory=ExitStack)
    _serving: dict[tuple[str, int, bool], Serving] = attrs.field(factory=dict)
    _filled: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _topics: int = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        self._servers.close()

    def run(self, workload: Workload, rounds: int) -> list[Result]:
        """Run *workload* with all systems that take part in it, and return their results.  A system
        that does not start is named and left out."""
        results = []
        for name in self.systems:
            module = module_of(name)
            if workload.kind in module.KINDS and name in (workload.systems or NAMES):
                try:
                    serving = self._serve(name, workload)
                except RuntimeError as error:
                    print(f"{name} is left out: {error}", file=sys.stderr)
                else:
                    results.append(Result(workload, name, serving.settings, serving.version))
        for _ in range(rounds):
            for result in results:
                if not result.problem:
                    try:
                        self._run_once(result)
                    except (RuntimeError, OSError, ValueError) as error:
                        result.problem = str(error)
                        print(f"{result.system}: {error}", file=sys.stderr)
        return results

    def _serve(self, name: str, workload: Workload) -> Serving:
        kind = (name, workload.replicas, workload.flush_before_ack)
        if kind not in self._serving:
            folder = self.directory / "-".join(str(part) for part in kind)
            folder.mkdir()
            serving = module_of(name).serving(folder, *kind[1:])
            self._serving[kind] = self._servers.enter_context(serving)
        return self._serving[kind]

    def _run_once(self, result: Result) -> None:
        workload, name = result.workload, result.system
        serving = self._serve(name, workload)
        self._topics += 1
        topic = f"topic-{self._topics}"
        if workload.kind in {"consume", "queue"}:
            topic = self._filled_topic(name, serving, workload)
        with ExitStack() as clients:
            started = []
            for role, more in _roles(workload, serving):
                parameters = {"address": serving.address, "topic": topic, **more}
                client = Client(name, role, parameters)
                clients.callback(client.close)
                client.wait_ready()
                started.append(client)
            before = {server: cpu_s(pid) for server, pid in serving.pids.items()}
            began = time.perf_counter()
            for client in started:
                client.go()
            figures = [client.figures() for client in started]
            wall_s = time.perf_counter() - began
            after = {server: cpu_s(pid) for server, pid in serving.pids.items()}
        _add(result, figures, {one: after[one] - before[one] for one in after}, wall_s)

    def _filled_topic(self, name: str, serving: Serving, workload: Workload) -> str:
        """A topic with the workload's messages, which each round reads again."""
        key = (name, workload.name)
        if key not in self._filled:
            self._filled[key] = f"filled-{workload.message_bytes}-{self._topics}"
            more = {"replicas": workload.replicas} if workload.replicas > 1 else {}
            client = Client(
                name,
                "produce",
                {
                    "address": serving.address,
                    "topic": self._filled[key],
                    "size": workload.message_bytes,
                    "count": workload.message_count,
                    **more,
                },
            )
            try:
                client.wait_ready()
                client.go()
                client.figures()
            finally:
                client.close()
        return self._filled[key]


def module_of(name: str) -> ModuleType:
    """The module of the system *name*."""
    return importlib.import_module(f"benchmarks.systems.{name}")


def _roles(workload: Workload, serving: Serving) -> Iterable[tuple[str, dict[str, Any]]]:
    """The roles and parameters of a workload's client processes, in the order in which they are
    started."""
    what: dict[str, Any] = {"size": workload.message_bytes, "count": workload.message_count}
    more: dict[str, Any] = {"replicas": workload.replicas} if workload.replicas > 1 else {}
    match workload.kind:
        case "produce":
            if workload.flush_before_ack:
                more["flush_before_ack"] = True
            what["count"] //= workload.producers
            for _ in range(workload.producers):
                yield "produce", {**what, **more}
        case "consume":
            yield "consume", what
        case "queue":
            yield "work_off", {**what, **more, "group": f"group-{time.monotonic_ns()}"}
        case "request":
            yield "request", {**what, **more}
        case "latency":
            yield "receive", what
            yield "pace", {**what, "rate": workload.rate}
        case "fan-out":
            yield (
                "subscribe",
                {
                    "websocket": serving.websocket,
                    "subscribers": workload.subscribers,
                    "end": _MARK,
                },
            )
            yield "flush", {**what, "flush_count": workload.flush_count, "end": _MARK}
        case "topics":
            yield "topics", {**what, "topics": workload.topics}
        case "producers":
            yield "producers", {**what, "producers": workload.producers}


def _add(
    result: Result, figures: list[dict[str, float]], servers_s: dict[str, float], wall_s: float
) -> None:
    workload = result.workload
    count = workload.message_count * max(1, workload.subscribers)
    if workload.kind not in {"latency"}:
        result.rates.append(count / max(one["wall_s"] for one in figures))
    for one in figures:
        if "p50_us" in one:
            result.p50_us.append(one["p50_us"])
            result.p99_us.append(one["p99_us"])
    clients_s = sum(one["cpu_s"] for one in figures)
    result.client_cpu_us.append(clients_s / count * 1e6)
    result.server_cpu_us.append(sum(servers_s.values()) / count * 1e6)
    for name, seconds in {**servers_s, "clients": clients_s}.items():
        result.cpu_shares.setdefault(name, []).append(seconds / wall_s)
