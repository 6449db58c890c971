"""One run: disturb, heal, let everything come to rest, and judge.

The final word has the disks: all replicas of a log hold the same bytes up to its highwater
mark, and what a client reads of them is what the histories are held against.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from octopi.clients.retrying import may_pass
from octopi.simulation.checker import check
from octopi.simulation.history import FinalLog, History, LogName, Rested, StoredMessage
from tests.chaos.cluster import ChaosCluster
from tests.chaos.schedule import Schedule
from tests.chaos.workload import CONSUMERS, TOPICS, Workload
from tests.processes import node_processes

_PROGRESS_S: Final = 5.0
_REST_S: Final = 60.0
"""Every kind of coming to rest may take so long."""
_FAULTS_SHOWN: Final = 20


@attrs.define
class Report:
    """What became of a run."""

    seed: int
    brokers: int
    seconds: float
    faults: list[str] = attrs.field(factory=list)
    """What must not be, in words; empty: all is well."""
    log: list[str] = attrs.field(factory=list)
    """What was done to the cluster, and how the clients went on."""
    evidence: list[str] = attrs.field(factory=list)
    """Events of the clients that belong to the faults."""
    counts: dict[str, int] = attrs.field(factory=dict)
    history: History = attrs.field(factory=History, repr=False)

    def __str__(self) -> str:
        title = f"chaos with seed {self.seed}, {self.brokers} brokers, {self.seconds:g} s"
        if not self.faults:
            return f"{title}: no fault found; {self.counts}"
        parts = [f"{title}: {len(self.faults)} faults", *self.faults[:_FAULTS_SHOWN]]
        parts += ["", "Events of the clients:", *self.evidence]
        parts += ["", "Events of the cluster:", *self.log, str(self.counts)]
        return "\n".join(parts)


async def run_chaos(
    directory: Path, *, brokers: int, seconds: float, seed: int, say: Callable[[str], None]
) -> Report:
    """Run it with the nodes' files in *directory*; *say* gets a line at a time."""
    report = Report(seed, brokers, seconds)
    began = trio.current_time()

    def log(line: str) -> None:
        line = f"{trio.current_time() - began:8.2f} {line}"
        report.log.append(line)
        say(line)

    with node_processes(directory) as nodes:
        try:
            async with trio.open_nursery() as nursery:
                cluster = ChaosCluster(nodes, nursery)
                await cluster.start(brokers)
                await _Run(cluster, report, log).run()
                nursery.cancel_scope.cancel()
        except* Exception as group:  # told together with what led to it
            report.faults.append("".join(traceback.format_exception(group)))
    return report


class _Run:
    def __init__(self, cluster: ChaosCluster, report: Report, log: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.report = report
        self.log = log
        self.workload = Workload(cluster.register_url, report.seed, report.history)
        self.schedule = Schedule(cluster, report.seed, log)

    async def run(self) -> None:
        await self.workload.create_topics()
        async with trio.open_nursery() as consuming:
            consuming.start_soon(self.workload.consume)
            consuming.start_soon(self._tell_progress)
            async with trio.open_nursery() as producing:
                producing.start_soon(self.workload.produce)
                await self.schedule.run(self.report.seconds)
                self.log("everything is healed")
                await self._in_time("the producers did not go on", self._acknowledged_anew)
                self.workload.stopping.set()
                with trio.move_on_after(_REST_S + 20) as slow:
                    while producing.child_tasks:  # noqa: ASYNC110
                        await trio.sleep(0.05)
                if slow.cancelled_caught:
                    self.report.faults.append("producers did not end")
                producing.cancel_scope.cancel()
            self.log("the producers have their outcomes")
            await self._in_time("not all replicas came in sync", self._all_in_sync)
            await self._in_time("replicas don't hold the same", self._all_equal)
            self.log("the replicas are in sync")
            final = await self._read_all()
            ends = {one.log: one.messages[-1].next_offset for one in final if one.messages}
            await self._in_time("consumers did not get to the end", self._at(ends))
            consuming.cancel_scope.cancel()
        self._judge(final, ends)

    async def _in_time(self, fault: str, holds: Callable[[], Awaitable[str]]) -> None:
        """Wait until nothing is missing; *holds* says what is, or nothing."""
        missing = ""
        with trio.move_on_after(_REST_S) as slow:
            while True:
                try:
                    missing = await holds()
                except octopi.OctopiError as error:
                    if not may_pass(error):
                        raise
                    missing = str(error)
                if not missing:
                    return
                await trio.sleep(0.1)
        if slow.cancelled_caught:
            self.report.faults.append(f"{fault} within {_REST_S:g} s: {missing}")

    async def _acknowledged_anew(self) -> str:
        counts = self.workload.counts
        before = counts["Acknowledged"]
        with trio.move_on_after(_REST_S / 2):
            while counts["Acknowledged"] < before + 100:  # noqa: ASYNC110
                await trio.sleep(0.05)
            return ""
        return f"{counts['Acknowledged'] - before} acknowledgements"

    async def _all_in_sync(self) -> str:
        async with octopi.connect(self.cluster.register_url) as client:
            info = await client.describe_cluster()
        wrong = [one for one in info.partitions if sorted(one.in_sync) != sorted(one.replicas)]
        wrong += [one for one in info.partitions if one.leader is None]
        return str(wrong or "")

    async def _all_equal(self) -> str:
        async with octopi.connect(self.cluster.register_url) as client:
            logs = await client.describe_logs()
        ends: dict[LogName, set[tuple[int, int]]] = {}
        for one in logs:
            name = LogName(one.log.topic, one.log.partition)
            ends.setdefault(name, set()).add((one.log.highwater, one.log.log_end))
        wrong = {
            str(log): seen
            for log, seen in ends.items()
            if len({end for pair in seen for end in pair}) != 1
        }
        return str(wrong or "")

    async def _read_all(self) -> list[FinalLog]:
        final: dict[LogName, list[StoredMessage]] = {}
        async with octopi.connect(self.cluster.register_url) as client:
            for topic in TOPICS:
                for partition in self.workload.partitions[topic]:
                    final[LogName(topic, partition)] = []
                async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                    async for one in consumer:
                        final[LogName(one.topic, one.partition)].append(
                            StoredMessage(
                                one.offset, one.next_offset, one.value, one.key, one.headers
                            )
                        )
        now = trio.current_time()
        return [FinalLog(now, log, tuple(messages)) for log, messages in final.items()]

    def _at(self, ends: dict[LogName, int]) -> Callable[[], Awaitable[str]]:
        async def holds() -> str:
            await trio.lowlevel.checkpoint()
            return "" if self.workload.finished(ends) else str(self.workload.positions)

        return holds

    def _judge(self, final: list[FinalLog], ends: dict[LogName, int]) -> None:
        report, history = self.report, self.report.history
        for one in final:
            history.note(one)
            for name, topic, _ in CONSUMERS:
                if one.log.topic == topic:
                    history.note(Rested(one.at, name, one.log))
        for fault in check(history):
            report.faults.append(str(fault))
            if len(report.faults) <= _FAULTS_SHOWN:
                report.evidence.append(fault.explain(history))
        for log, end in ends.items():
            held: dict[bytes, list[str]] = {}
            for broker in self.cluster.brokers:
                if (self.cluster.nodes[broker].data_dir / "logs" / str(log.partition)).exists():
                    held.setdefault(self.cluster.records(broker, log, end), []).append(broker)
            if len(held) != 1 or any(len(records) != end for records in held):
                sizes = {", ".join(names): len(records) for records, names in held.items()}
                report.faults.append(f"{log}: replicas differ below {end}: {sizes} bytes")
        report.faults += [*self.workload.faults, *self.cluster.complaints()]
        report.counts = {
            **self.workload.counts,
            "Duplicate receipts": sum(getattr(one, "duplicate", 0) for one in history.events),
            "Epochs seen": len({getattr(one, "epoch", 0) for one in history.events}),
            **self.schedule.counts,
        }

    async def _tell_progress(self) -> None:
        while True:
            await trio.sleep(_PROGRESS_S)
            counts = ", ".join(f"{count} {name}" for name, count in self.workload.counts.items())
            busy = " ".join(sorted(self.schedule.busy)) or "none"
            self.log(f"{counts}; disturbed now: {busy}")
