"""The nodes of one run as processes, each reached through a proxy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Final

import attrs
import trio

from octopi.cli.free_ports import free_port
from octopi.cli.node_processes import first_line, node_command, node_environment, ready_url
from octopi.cli.secret_files import add_secret
from octopi.limits import JOIN_SECRET_BYTES
from octopi.operating_system import open_private
from octopi.simulation.cluster import REGISTER
from sim.real.proxy import ProxyNetwork
from sim.run.plan import Plan

READY_S: Final = 120.0
"""A node serves within this time of its start, also on a busy machine."""
_STOP_S: Final = 40.0
"""From SIGTERM until a node has ended; after this time it is killed."""


class NodeEndedError(Exception):
    """A node that was started ended, or did not serve in time."""


@attrs.define
class RealNode:
    """One node.  Its directory, address and options stay the same from start to start."""

    name: str
    role: str
    options: list[str]
    directory: Path
    _nursery: trio.Nursery
    is_wanted: bool = False
    """Whether it shall run: it was started, and nobody has ended it since."""
    is_paused: bool = False
    exit_code: int | None = None
    """How its last process ended."""
    _process: trio.Process | None = None
    _ready: trio.Event = attrs.field(factory=trio.Event)
    _ended: trio.Event = attrs.field(factory=trio.Event)

    @property
    def data_dir(self) -> Path:
        """Where its files are."""
        return self.directory / self.name

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """The id of its process; None: it is down."""
        return self._process.pid if self._process is not None and self.is_running else None

    def log(self) -> str:
        """All that it logged, in all its lives."""
        file = self._log_file
        return file.read_text(errors="replace") if file.exists() else ""

    @property
    def _log_file(self) -> Path:
        return self.directory / f"{self.name}.log"

    async def launch(self) -> None:
        """Start the process, and return before it serves; nothing happens if it runs."""
        with trio.CancelScope(shield=True):  # a process that is started is known
            if self.is_running:
                return
            arguments = ["--role", self.role, "--data-dir", str(self.data_dir), "--stop-at-eof"]
            with open_private(self._log_file, "ab") as log:
                process = await trio.lowlevel.open_process(
                    node_command(*arguments, *self.options),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.directory,
                    env={**node_environment(), "OCTOPI_HISTORY": "false"},
                    start_new_session=True,
                )
            self._process, self.is_wanted, self.is_paused = process, True, False
            self._ready, self._ended = trio.Event(), trio.Event()
            self._nursery.start_soon(self._look_after, process, self._ready, self._ended)

    async def wait_ready(self) -> None:
        """Wait until it serves.

        Raises:
          NodeEndedError: if it ended, or doesn't serve within `READY_S`.
        """
        with trio.move_on_after(READY_S):
            await self._ready.wait()
            if self.is_running:
                return
            raise NodeEndedError(f"{self.name} ended, code {self.exit_code}: {self.last_words()}")
        raise NodeEndedError(f"{self.name} does not serve within {READY_S:g} s")

    def last_words(self) -> str:
        """The last line that it logged."""
        return (self.log().splitlines() or ["it logged nothing"])[-1][:300]

    async def kill(self) -> None:
        """SIGKILL; return when the process is gone."""
        self.is_wanted = False
        if self._process is not None and self.is_running:
            self._process.kill()
            await self._ended.wait()

    async def stop(self) -> None:
        """SIGTERM; return when the process is gone."""
        self.is_wanted = False
        if self._process is not None and self.is_running:
            self.resume()
            self._process.terminate()
            with trio.move_on_after(_STOP_S):
                await self._ended.wait()
                return
            await self.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGSTOP)
            self.is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None and self.is_running:
            self._process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def empty_disk(self) -> None:
        """Remove all its files; it must be down."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    async def _look_after(
        self, process: trio.Process, ready: trio.Event, ended: trio.Event
    ) -> None:
        try:
            if ready_url(await first_line(process)) is not None:
                ready.set()
            self.exit_code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                for stream in (process.stdin, process.stdout):
                    if stream is not None:
                        await stream.aclose()
            ready.set()
            ended.set()


class RealCluster:
    """Registers and brokers, or brokers alone, with the names that the plan's hosts have."""

    def __init__(self, directory: Path, plan: Plan, nursery: trio.Nursery) -> None:
        self.nodes: dict[str, RealNode] = {}
        self.registers: list[str] = []
        self.urls: dict[str, str] = {}
        """Where each node is reached: at its proxy."""
        self.network = ProxyNetwork(nursery, self._pids)
        self._directory = directory
        self._plan = plan
        self._nursery = nursery

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return [name for name in self.nodes if name not in self.registers]

    @property
    def servers(self) -> list[str]:
        """The addresses that clients are told."""
        through_brokers = not self.registers or self._plan.workload.entrances == "brokers"
        return [self.urls[one] for one in (self.brokers if through_brokers else self.registers)]

    async def start(self) -> None:
        """Start all nodes; return when they serve.

        Raises:
          NodeEndedError: if one doesn't.
        """
        plan = self._plan
        secret = self._directory / "join-secret"
        add_secret(secret, os.urandom(JOIN_SECRET_BYTES))
        counts = ["--partitions", str(plan.partitions), "--replicas", str(plan.replicas)]
        names = [f"broker-{number}" for number in range(1, plan.brokers + 1)]
        if not plan.founders:
            others = [f"{REGISTER}-{number}" for number in range(2, plan.registers + 1)]
            self.registers = [REGISTER, *others]
        for name in (*self.registers, *names):
            await self._add(name, secret)
        registers = ",".join(self.urls[name] for name in self.registers)
        for name in self.registers:
            options = [*counts, "--gather", f"{plan.gather_s:g}"]
            if len(self.registers) > 1:
                options += ["--peers", registers, "--advertise", self.urls[name]]
            self.nodes[name].options += options
        founders = ",".join(self.urls[name] for name in names[: plan.founders])
        flush = ["--flush-interval", f"{plan.flush_interval_s:g}"]
        for name in names:
            of_cluster = ["--join", founders, *counts] if founders else ["--register", registers]
            self.nodes[name].options += ["--advertise", self.urls[name], *of_cluster]
            self.nodes[name].options += [] if founders else flush
        for group in (self.registers, names):
            async with trio.open_nursery() as starting:
                for name in group:
                    starting.start_soon(self._start, self.nodes[name])

    async def stop(self) -> None:
        """Stop all nodes at the same time."""
        async with trio.open_nursery() as stopping:
            for node in self.nodes.values():
                stopping.start_soon(node.stop)

    def active_register(self) -> str:
        """The register that decides, or decided last, by what the registers logged."""
        terms = {}
        for name in self.registers if len(self.registers) > 1 else ():
            lines = self.nodes[name].log().splitlines()
            found = [json.loads(line) for line in lines if '"this register is active"' in line]
            terms[name] = max((one["term"] for one in found), default=0)
        return max(terms, key=lambda name: terms[name], default=REGISTER)

    def errors(self, *, level: bool) -> list[str]:
        """Lines of the logs that tell of what was not foreseen; with *level*, also those at the
        level of errors, which healthy files don't bring about."""
        found = []
        for name, node in self.nodes.items():
            for line in node.log().splitlines():
                if not line.startswith("{"):
                    is_error = not line.startswith(("octopi-node: ", "Error: "))
                else:
                    entry = json.loads(line)
                    is_error = "exception" in entry or "traceback" in entry
                    is_error = is_error or (level and entry.get("level") == "error")
                if is_error:
                    found.append(f"{name} logged: {line[:1000]}")
        return found

    async def _add(self, name: str, secret: Path) -> None:
        port = free_port()
        self.urls[name] = await self.network.open(name, port)
        role = "register" if name in self.registers else "broker"
        options = ["--listen", f"127.0.0.1:{port}", "--join-secret", str(secret)]
        self.nodes[name] = RealNode(name, role, options, self._directory, self._nursery)

    @staticmethod
    async def _start(node: RealNode) -> None:
        await node.launch()
        await node.wait_ready()

    def _pids(self) -> dict[str, int]:
        return {name: pid for name, node in self.nodes.items() if (pid := node.pid) is not None}
