"""Runs a plan with real processes, heals everything, and judges what clients noted."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import attrs
import trio

import octopi
from octopi.cli.failures import leaves
from octopi.cli.node_processes import node_command, node_environment
from octopi.errors import OctopiError
from octopi.retry import may_pass
from octopi.simulation.faults.actions import BitFlip, Wipe
from octopi.simulation.faults.damage import Damage
from sim.real.clients import RealClients
from sim.real.injector import RealInjector
from sim.real.ledger import Content, LogId, StoredValue, judge_replica
from sim.real.nodes import NodeEndedError, RealCluster, RealNode
from sim.real.records import NoRecordError, log_bytes, log_directory, read_records
from sim.real.translation import RealPlan

_REST_S: Final = 120.0
"""Each step of progress may take so long when everything is healed."""
_LOOK_S: Final = 0.1


@attrs.define
class RealReport:
    """The result of a run with processes."""

    faults: list[str] = attrs.field(factory=list)
    """What must not be, in words; empty: no promise was broken."""
    counts: dict[str, int] = attrs.field(factory=dict)
    """What clients noted, and which faults struck."""
    seconds: float = 0.0


class _StuckError(Exception):
    """What has to happen in a healed cluster doesn't; nothing more can be asked of it."""


async def run_real(real: RealPlan, directory: Path, say: Callable[[str], None]) -> RealReport:
    """Run *real* with the nodes' files in *directory*; *say* gets a line at a time."""
    report = RealReport()
    began = trio.current_time()

    def tell(line: str) -> None:
        say(f"{trio.current_time() - began:8.2f} {line}")

    try:
        async with trio.open_nursery() as nursery:
            cluster = RealCluster(directory, real.plan, nursery)
            try:
                await cluster.start()
                tell("all nodes serve")
                await _RealRun(real, cluster, report, tell).run()
            finally:
                with trio.CancelScope(shield=True):
                    await cluster.stop()
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        expected, others = group.split((_StuckError, NodeEndedError, OctopiError, AssertionError))
        if others is not None:
            raise
        assert expected is not None
        report.faults += [_in_words(one) for one in leaves(expected)]
    report.seconds = trio.current_time() - began
    return report


def _in_words(error: BaseException) -> str:
    if isinstance(error, _StuckError | NodeEndedError):
        return str(error)
    return "".join(traceback.format_exception(error))


class _RealRun:
    def __init__(
        self,
        real: RealPlan,
        cluster: RealCluster,
        report: RealReport,
        tell: Callable[[str], None],
    ) -> None:
        self._real = real
        self._cluster = cluster
        self._report = report
        self._tell = tell
        self._clients = RealClients(real.plan, cluster.servers)
        self._injector = RealInjector(real, cluster, self._clients, tell)

    async def run(self) -> None:
        """The whole run, with a cluster that serves."""
        clients = self._clients
        try:
            await clients.create_topics()
            async with trio.open_nursery() as consuming:
                consuming.start_soon(clients.look)
                consuming.start_soon(clients.consume)
                async with trio.open_nursery() as producing:
                    producing.start_soon(clients.produce)
                    await clients.fresh()  # who leads is known before it is to be killed
                    await self._disturb()
                    await self._heal()
                    await self._until("new messages are not taken", self._taken_anew())
                    if self._real.plan.kills_each:
                        await self._kill_each()
                    clients.stopping.set()
                    with trio.move_on_after(_REST_S) as slow:
                        while producing.child_tasks:  # noqa: ASYNC110
                            await trio.sleep(_LOOK_S)
                    if slow.cancelled_caught:
                        raise _StuckError(f"producers did not end within {_REST_S:g} s")
                await self._until("replicas are not in sync", self._out_of_sync)
                await self._until("replicas differ", self._differing)
                await self._until("the cluster is not healthy", self._unhealthy)
                final = await clients.read_all()
                ends = {log: content[-1].next_offset for log, content in final.items() if content}

                async def behind() -> str:
                    await trio.lowlevel.checkpoint()
                    return clients.behind(ends)

                await self._until("consumers are behind", behind)
                consuming.cancel_scope.cancel()
            self._judge(final)
        finally:
            self._report.counts = {**clients.ledger.counts, **self._injector.counts}
            self._report.faults += clients.faults
            destroys = any(
                isinstance(one.action, Wipe | BitFlip | Damage) for one in self._real.plan.faults
            )
            self._report.faults += self._cluster.errors(level=not destroys)

    async def _disturb(self) -> None:
        with trio.move_on_after(self._real.plan.faults_s):
            await self._injector.run()

    async def _heal(self) -> None:
        """Start what is down, and replace disks, as an operator would.

        Raises:
          _StuckError, NodeEndedError: if nodes don't serve, or don't come in sync.
        """
        for node in self._cluster.nodes.values():
            node.resume()
            if node.is_wanted and not node.is_running and node.name not in self._injector.unfit:
                text = f"{node.name} ended by itself, code {node.exit_code}: {node.last_words()}"
                self._report.faults.append(text)
        async with trio.open_nursery() as nursery:
            for node in self._cluster.nodes.values():
                nursery.start_soon(self._bring_up, node)
        self._tell("everything is healed")
        for name in list(self._injector.unfit):
            await self._replace_unfit(self._cluster.nodes[name])
        for name, broker in self._injector.lost.items():
            await self._clients.replace_broker(broker, self._cluster.urls[name])
            self._tell(f"the replicas of broker {broker}, which had {name}, were given to others")
        await self._until("replicas are not in sync", self._out_of_sync)
        self._tell("all replicas are in sync")

    async def _bring_up(self, node: RealNode) -> None:
        await node.launch()
        try:
            await node.wait_ready()
        except NodeEndedError as error:
            if node.name not in self._injector.unfit:
                raise
            self._tell(f"{error}; its files are damaged")

    async def _replace_unfit(self, node: RealNode) -> None:
        """Give a broker that can't notice how its files are damaged an empty disk, once others
        have what it has."""
        address = self._cluster.urls[node.name]

        async def not_alone() -> str:
            info = await self._clients.fresh()
            others = {one.broker for one in info.brokers if one.live and one.address != address}
            return ", ".join(
                str(one.partition) for one in info.partitions if not others & {*one.in_sync}
            )

        await self._until(f"no other broker has what {node.name} has", not_alone)
        await node.kill()
        broker = await self._injector.may_lose(node.name)
        if broker is None:
            info = await self._clients.fresh()
            broker = max(one.broker for one in info.brokers if one.address == address)
        self._injector.empty(node, broker)
        self._tell(f"{node.name} gets an empty disk")
        await node.launch()
        await node.wait_ready()

    async def _kill_each(self) -> None:
        standbys = self._cluster.registers if len(self._cluster.registers) > 1 else []
        for name in (*standbys, *self._cluster.brokers):
            node = self._cluster.nodes[name]
            self._tell(f"{name} is killed once more")
            await node.kill()
            await self._until(f"no progress without {name}", self._taken_anew())
            await node.launch()
            await node.wait_ready()
            await self._until("replicas are not in sync", self._out_of_sync)

    # --- progress ------------------------------------------------------------------------

    async def _until(self, problem: str, missing: Callable[[], Awaitable[str]]) -> None:
        """Wait until *missing* returns an empty text.

        Raises:
          _StuckError: if that takes longer than `_REST_S`; *problem* begins its text.
        """
        what = ""
        with trio.move_on_after(_REST_S) as slow:
            while True:
                try:
                    what = await missing()
                except OctopiError as error:
                    if not may_pass(error):
                        raise
                    what = str(error)
                if not what:
                    return
                await trio.sleep(_LOOK_S)
        if slow.cancelled_caught:
            raise _StuckError(f"{problem} for {_REST_S:g} s: {what}")

    def _taken_anew(self) -> Callable[[], Awaitable[str]]:
        """Which logs have taken no message since now."""
        ledger, logs = self._clients.ledger, self._clients.logs
        before = ledger.acknowledged_in.copy()

        async def missing() -> str:
            await trio.lowlevel.checkpoint()
            same = [log for log in logs if ledger.acknowledged_in[log] == before[log]]
            return ", ".join(map(str, same)) if self._real.plan.workload.producers else ""

        return missing

    async def _out_of_sync(self) -> str:
        info = await self._clients.fresh()
        wrong: list[object] = [one for one in info.brokers if not one.live]
        wrong += [
            one
            for one in info.partitions
            if one.leader is None or {*one.in_sync} != {*one.replicas}
        ]
        return ", ".join(map(str, wrong))

    async def _differing(self) -> str:
        async with octopi.connect(self._cluster.servers) as client:
            logs = await client.admin.describe_logs()
        ends: dict[tuple[str, int], set[int]] = {}
        for one in logs:
            log = one.log
            ends.setdefault((log.topic, log.partition), set()).update((log.highwater, log.log_end))
        return ", ".join(f"{log}: {seen}" for log, seen in ends.items() if len(seen) > 1)

    async def _unhealthy(self) -> str:
        """What ``octopi-node status`` says, unless it says that all is well."""
        done = await trio.run_process(
            node_command("status", "--server", ",".join(self._cluster.servers)),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env=node_environment(),
            stdin=subprocess.DEVNULL,
        )
        return "" if done.returncode == 0 else (done.stdout + done.stderr).decode()

    # --- the end -------------------------------------------------------------------------

    def _judge(self, final: dict[LogId, Content]) -> None:
        self._report.faults += self._clients.ledger.judge(final)
        for log, content in final.items():
            for name in self._cluster.brokers:
                data_dir = self._cluster.nodes[name].data_dir
                directory = log_directory(data_dir, log.topic, log.partition)
                if directory.exists():
                    self._report.faults += _judge_files(log, name, directory, content)


def _judge_files(log: LogId, broker: str, directory: Path, content: Content) -> list[str]:
    try:
        records = [StoredValue(*one) for one in read_records(log_bytes(directory))]
    except NoRecordError as error:
        return [f"{log}: the files of {broker}: {error}"]
    return judge_replica(log, broker, records, content)
