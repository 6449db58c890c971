"""Runs workloads: in each round each system runs the workload once, so that other work of the
machine affects all systems alike; `benchmarks.pairing` says in which order.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import attrs

from benchmarks.machine_load import Load, load_at_rest, load_between, read_now, reasons
from benchmarks.pairing import turns
from benchmarks.processes import Client, cpu_s, minor_faults
from benchmarks.results import LeftOut, Measurement, Participant, Run
from benchmarks.systems import Serving, module_of, server_of, takes_part
from benchmarks.workloads import Workload

_MARK: Final = "end-of-the-measurement"


@attrs.frozen
class Plan:
    """What is measured, apart from the workloads."""

    systems: tuple[str, ...]
    rounds: int
    seed: int
    """Decides the order of the systems in each round."""


@attrs.define
class Runner:
    """Runs workloads.  Servers start with the first workload that needs them, and stay up."""

    directory: Path
    plan: Plan
    run: Run
    """Gets the results."""
    on_result: Callable[[], None]
    """Called after each change of *run*."""
    _servers: ExitStack = attrs.field(factory=ExitStack)
    _serving: dict[tuple[str, int, bool], Serving] = attrs.field(factory=dict)
    _filled: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _topics: int = 0

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *error: object) -> None:
        # A second Ctrl-C would leave servers behind.
        former = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._servers.close()
        finally:
            signal.signal(signal.SIGINT, former)

    def load_at_rest(self) -> Load:
        """The work of others now, while the benchmark's servers wait."""
        return load_at_rest(self._processes())

    def measure(self, workload: Workload, before_round: Callable[[], None]) -> None:
        """Run *workload* in all rounds, with all systems that take part in it.

        A system that doesn't start is left out, and one that fails runs no further round.
        """
        systems = [name for name in self.plan.systems if self._joins(name, workload)]
        failed: set[str] = set()
        for number in range(self.plan.rounds):
            before_round()
            order = turns(systems, workload.name, number, self.plan.seed)
            for turn, name in enumerate(order):
                if name not in failed:
                    found = self._measured(workload, name, number, turn)
                    if found.problem:
                        failed.add(name)
                    self.run.measurements.append(found)
                self.on_result()

    def _joins(self, name: str, workload: Workload) -> bool:
        """Whether a system takes part; its servers run then."""
        if not takes_part(name, workload):
            return False
        module = module_of(name)
        try:
            serving = self._serve(name, workload)
        except (RuntimeError, OSError) as error:
            self.run.left_out.append(LeftOut(name, str(error), workload.name))
            return False
        self.run.participants.append(
            Participant(
                workload=workload.name,
                system=name,
                title=module.TITLE,
                version=serving.version,
                settings=serving.settings,
                server=server_of(name),
                differs=getattr(module, "DIFFERS", ""),
            )
        )
        return True

    def _serve(self, name: str, workload: Workload) -> Serving:
        kind = (server_of(name), workload.replicas, workload.flush_before_ack)
        if kind not in self._serving:
            folder = self.directory / "-".join(str(part) for part in kind)
            folder.mkdir(exist_ok=True)
            serving = module_of(kind[0]).serving(folder, *kind[1:])
            self._serving[kind] = self._servers.enter_context(serving)
        return self._serving[kind]

    def _processes(self) -> set[int]:
        """This process and all servers; what they start is found from them."""
        return {os.getpid(), *(pid for one in self._serving.values() for pid in one.pids.values())}

    def _measured(self, workload: Workload, name: str, number: int, turn: int) -> Measurement:
        """One turn of a system, and what others did meanwhile."""
        began_at, before = datetime.now(UTC).isoformat(timespec="seconds"), read_now()
        figures: dict[str, Any] = {}
        problem = ""
        try:
            figures = self._figures(workload, name)
        except (RuntimeError, OSError, ValueError) as error:
            problem = str(error) or type(error).__name__
        load = load_between(before, read_now(), self._processes())
        return Measurement(
            workload=workload.name,
            system=name,
            round=number,
            turn=turn,
            began_at=began_at,
            load=load,
            busy=tuple(reasons(load, at_rest=False)),
            problem=problem,
            **figures,
        )

    def _figures(self, workload: Workload, name: str) -> dict[str, Any]:
        serving = self._serve(name, workload)
        self._topics += 1
        topic = f"topic-{self._topics}"
        if workload.kind in {"consume", "queue"}:
            topic = self._filled_topic(server_of(name), serving, workload)
        with ExitStack() as clients:
            started = []
            for role, more in _roles(workload, serving):
                parameters = {"address": serving.address, "topic": topic, **more}
                client = Client(name, role, parameters)
                clients.callback(client.close)
                client.wait_ready()
                started.append(client)
            before = {server: _used(pid) for server, pid in serving.pids.items()}
            began = time.perf_counter()
            for client in started:
                client.go()
            figures = [client.figures() for client in started]
            wall_s = time.perf_counter() - began
            after = {server: _used(pid) for server, pid in serving.pids.items()}
        servers_s = {one: after[one][0] - before[one][0] for one in after}
        faults = sum(after[one][1] - before[one][1] for one in after)
        return _for_a_message(workload, figures, servers_s, faults, wall_s)

    def _filled_topic(self, server: str, serving: Serving, workload: Workload) -> str:
        """A topic with the workload's messages, which each round reads again."""
        key = (server, workload.name)
        if key not in self._filled:
            topic = f"filled-{workload.message_bytes}-{self._topics}"
            more = {"replicas": workload.replicas} if workload.replicas > 1 else {}
            client = Client(
                server,
                "produce",
                {
                    "address": serving.address,
                    "topic": topic,
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
            self._filled[key] = topic
        return self._filled[key]


def _used(pid: int) -> tuple[float, int]:
    return cpu_s(pid), minor_faults(pid)


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
            yield "topics", {**what, "topics": workload.topics, "linger_s": workload.linger_s}
        case "producers":
            yield "producers", {**what, "producers": workload.producers}


def _for_a_message(
    workload: Workload,
    clients: list[dict[str, float]],
    servers_s: dict[str, float],
    server_faults: int,
    wall_s: float,
) -> dict[str, Any]:
    """The figures of a `Measurement`, from those of its processes."""
    count = workload.message_count * max(1, workload.subscribers)
    clients_s = sum(one["cpu_s"] for one in clients)
    found: dict[str, Any] = {
        "wall_s": wall_s,
        "client_cpu_us": clients_s / count * 1e6,
        "server_cpu_us": sum(servers_s.values()) / count * 1e6,
        "client_faults": sum(one["minor_faults"] for one in clients) / count,
        "server_faults": server_faults / count,
        "cores": {
            name: seconds / wall_s for name, seconds in {**servers_s, "clients": clients_s}.items()
        },
    }
    if workload.kind != "latency":
        found["rate"] = count / max(one["wall_s"] for one in clients)
    for one in clients:
        if "p50_us" in one:
            found |= {"p50_us": one["p50_us"], "p99_us": one["p99_us"]}
    return found
