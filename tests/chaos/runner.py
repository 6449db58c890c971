"""One run: disturb, heal, let everything come to rest, kill each once more, and judge.

The final word has the disks: what clients read of a log is what the ledger is held against,
and the files of all its replicas hold exactly that.
"""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from harness.processes import node_processes
from octopi.cli.failures import leaves
from octopi.cli.node_processes import node_command, node_environment
from octopi.retry import may_pass
from sim.real.ledger import Content, Ledger, LogId, StoredValue, judge_replica
from sim.real.records import NoRecordError, log_bytes, log_directory, read_records
from tests.chaos.cluster import ChaosCluster, in_thread
from tests.chaos.schedule import Schedule
from tests.chaos.workload import REMADE, Workload

_PROGRESS_S: Final = 5.0
_REST_S: Final = 120.0
"""Every kind of coming to rest may take so long."""
_FAULTS_SHOWN: Final = 20
_ERRORS_EXCUSED: Final = {"damage", "power", "blackout", "full", "forget"}
"""Kinds of faults that nodes rightly call errors in their logs."""


@attrs.define
class Report:
    """What became of a run."""

    seed: int
    brokers: int
    seconds: float
    kinds: Collection[str]
    registers: int = 1
    faults: list[str] = attrs.field(factory=list)
    """What must not be, in words; empty: all is well."""
    log: list[str] = attrs.field(factory=list)
    """What was done to the cluster, and how the clients went on."""
    counts: dict[str, int] = attrs.field(factory=dict)

    def __str__(self) -> str:
        title = (
            f"chaos with seed {self.seed}, {self.registers} registers, {self.brokers} brokers, "
            f"{self.seconds:g} s of "
            f"{','.join(self.kinds)}"
        )
        if not self.faults:
            return f"{title}: no fault found; {self.counts}"
        parts = [f"{title}: {len(self.faults)} faults", *self.faults[:_FAULTS_SHOWN]]
        return "\n".join([*parts, "", "Events of the cluster:", *self.log, str(self.counts)])


async def run_chaos(
    directory: Path,
    *,
    brokers: int,
    seconds: float,
    seed: int,
    kinds: Collection[str],
    say: Callable[[str], None],
    registers: int = 1,
) -> Report:
    """Run it with the nodes' files in *directory*; *say* gets a line at a time.

    Raises:
        CannotMountError: *kinds* has ``full``, and this process may not mount.
    """
    report = Report(seed, brokers, seconds, kinds, registers)
    began = trio.current_time()

    def log(line: str) -> None:
        line = f"{trio.current_time() - began:8.2f} {line}"
        report.log.append(line)
        say(line)

    with node_processes(directory) as nodes:
        try:
            async with trio.open_nursery() as nursery:
                cluster = ChaosCluster(nodes, nursery, small_disks="full" in kinds)
                nodes.closed.append(cluster.close)
                await cluster.start(brokers, registers)
                run = _Run(cluster, report, log)
                try:
                    await run.run()
                finally:
                    run.tell_what_clients_met()
                nursery.cancel_scope.cancel()
        except* _StuckError as stuck:
            report.faults += [str(one) for one in leaves(stuck)]
        except* Exception as group:  # told together with what led to it
            report.faults.append("".join(traceback.format_exception(group)))
    return report


class _StuckError(Exception):
    """What has to happen in a healed cluster doesn't; nothing more can be asked of it."""


class _Run:
    def __init__(self, cluster: ChaosCluster, report: Report, log: Callable[[str], None]) -> None:
        self.cluster = cluster
        self.report = report
        self.log = log
        self.ledger = Ledger()
        self.workload = Workload(cluster.servers, report.seed, self.ledger)
        self.schedule = Schedule(
            cluster, self.workload, self.ledger, report.seed, report.kinds, log
        )

    async def run(self) -> None:
        await self.workload.create_topics()
        async with trio.open_nursery() as consuming:
            consuming.start_soon(self.workload.consume)
            consuming.start_soon(self._tell_progress)
            async with trio.open_nursery() as producing:
                producing.start_soon(self.workload.produce)
                await self.schedule.run(self.report.seconds)
                self.log("everything is healed")
                await self._in_time("the producers did not go on", self._acknowledged_anew())
                await self._in_time("not all replicas came in sync", self._all_in_sync)
                self.log("all are in sync")
                await self._kill_each_once_more()
                self.workload.stopping.set()
                with trio.move_on_after(_REST_S) as slow:
                    while producing.child_tasks:  # noqa: ASYNC110
                        await trio.sleep(0.05)
                if slow.cancelled_caught:
                    self._fault("producers did not end")
                producing.cancel_scope.cancel()
            self.log("the producers have their outcomes")
            await self._in_time("not all replicas came in sync", self._all_in_sync)
            await self._in_time("replicas don't hold the same", self._all_equal)
            await self._in_time("the cluster is not healthy", self._healthy)
            self.log("the cluster is healthy")
            final = await self._read_all()
            ends = {log: content[-1].next_offset for log, content in final.items() if content}
            await self._in_time("consumers did not get to the end", partial(self._at, ends))
            consuming.cancel_scope.cancel()
        self._judge(final)

    def _fault(self, text: str) -> None:
        self.log(f"FAULT {text}")
        self.report.faults.append(text)

    async def _kill_each_once_more(self) -> None:
        standbys = self.cluster.registers if self.report.registers > 1 else []
        for name in (*standbys, *self.cluster.brokers):
            node = self.cluster.nodes[name]
            self.log(f"kill {name} once more")
            await in_thread(node.kill9)
            await self._in_time(f"no progress without {name}", self._acknowledged_anew())
            await in_thread(node.restart)
            await self._in_time(f"{name} did not come back in sync", self._all_in_sync)

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
                await trio.sleep(0.2)
        if slow.cancelled_caught:
            raise _StuckError(f"{fault} within {_REST_S:g} s: {missing}")

    def _acknowledged_anew(self) -> Callable[[], Awaitable[str]]:
        """Which logs that producers send to have taken nothing since now."""
        before = self.ledger.acknowledged_in.copy()

        async def holds() -> str:
            await trio.lowlevel.checkpoint()
            now = self.ledger.acknowledged_in
            sent_to = [log for log in self.workload.logs if log.topic != REMADE]
            return ", ".join(str(log) for log in sent_to if now[log] == before[log])

        return holds

    async def _all_in_sync(self) -> str:
        async with octopi.connect(self.cluster.servers) as client:
            info = await client.admin.describe_cluster()
        wrong: list[object] = [
            one for one in info.partitions if sorted(one.in_sync) != sorted(one.replicas)
        ]
        wrong += [one for one in info.partitions if one.leader is None]
        wrong += [one for one in info.brokers if not one.live]
        return str(wrong or "")

    async def _all_equal(self) -> str:
        async with octopi.connect(self.cluster.servers) as client:
            logs = await client.admin.describe_logs()
        ends: dict[tuple[str, int], set[tuple[int, int]]] = {}
        for one in logs:
            name = (one.log.topic, one.log.partition)
            ends.setdefault(name, set()).add((one.log.highwater, one.log.log_end))
        wrong = {
            str(log): seen
            for log, seen in ends.items()
            if len({end for pair in seen for end in pair}) != 1
        }
        return str(wrong or "")

    async def _healthy(self) -> str:
        """What ``octopi-node status`` says, if that is not that all is well."""
        command = node_command("status", "--server", ",".join(self.cluster.servers))
        done = await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
        )
        return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()

    async def _read_all(self) -> dict[LogId, Content]:
        final: dict[LogId, Content] = {log: [] for log in self.workload.logs}
        by_place = {(log.topic, log.partition): content for log, content in final.items()}
        async with octopi.connect(self.cluster.servers) as client:
            for topic in self.workload.partitions:
                async with client.consumer(topic, start="earliest", stop_at_end=True) as consumer:
                    async for one in consumer:
                        by_place[one.topic, one.partition].append(
                            StoredValue(one.offset, one.next_offset, one.value)
                        )
        return final

    async def _at(self, ends: dict[LogId, int]) -> str:
        await trio.lowlevel.checkpoint()
        return self.workload.behind(ends)

    def _judge(self, final: dict[LogId, Content]) -> None:
        faults = self.ledger.judge(final)
        for log, content in final.items():
            for broker in self.cluster.brokers:
                directory = log_directory(
                    self.cluster.nodes[broker].data_dir, log.topic, log.partition
                )
                if directory.exists():
                    faults += _judge_files(log, broker, directory, content)
        if not _ERRORS_EXCUSED & set(self.report.kinds):
            faults += self.cluster.errors()
        for fault in faults:
            self._fault(fault)

    def tell_what_clients_met(self) -> None:
        """What is a fault however the run ends."""
        for fault in [*self.workload.faults, *self.schedule.faults, *self.cluster.broken_off()]:
            self._fault(fault)
        self.report.counts = {**self.ledger.counts, **self.schedule.counts}

    async def _tell_progress(self) -> None:
        while True:
            await trio.sleep(_PROGRESS_S)
            counts = ", ".join(f"{count} {name}" for name, count in self.ledger.counts.items())
            busy = " ".join(sorted(self.schedule.busy)) or "none"
            spoilt = " ".join(map(str, sorted(self.schedule.bounds.spoilt))) or "none"
            self.log(f"{counts}; disturbed now: {busy}; spoilt: {spoilt}")


def _judge_files(log: LogId, broker: str, directory: Path, content: Content) -> list[str]:
    try:
        records = [StoredValue(*one) for one in read_records(log_bytes(directory))]
    except NoRecordError as error:
        return [f"{log}: the files of {broker}: {error}"]
    return judge_replica(log, broker, records, content)
