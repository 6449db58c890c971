"""Registers and brokers, or brokers alone, as processes, every way between them through the
network's proxies."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from harness.machines import Machine
from harness.processes import NodeProcess, NodeProcesses
from octopi.cli.free_ports import free_port
from sim.real.proxy import ProxyNetwork

REGISTER: Final = "register"

_DISK_MIB: Final = 640
"""Of the small disk that a broker has if disks are to be full."""


class CannotMountError(Exception):
    """This process may not mount a small disk, so no disk can be full."""


class ChaosCluster:
    """The nodes of one run."""

    def __init__(self, nodes: NodeProcesses, nursery: trio.Nursery, *, small_disks: bool) -> None:
        """*small_disks*: each broker has a disk of its own that can be full."""
        self.network = ProxyNetwork(nursery, self._pids)
        self.nodes: dict[str, NodeProcess] = {}
        """By name; brokers are ``broker-1`` and so on, by the ids that they have at first."""
        self.ids: dict[str, int] = {}
        """Of the brokers."""
        self.urls: dict[str, str] = {}
        """Where the brokers are reached."""
        self.registers: list[str] = []
        """The names of the registers; the first is also the first to start.  Empty: the brokers
        decide themselves."""
        self.servers: list[str] = []
        """What clients are told: where the registers are reached, or all brokers."""
        self._processes = nodes
        self._small_disks = small_disks
        self._mounted: list[Path] = []

    async def start(self, brokers: int, registers: int = 1) -> None:
        """Start one register, several or none, and *brokers* brokers."""
        if registers == 0:
            await self._start_ring(brokers)
            return
        self.registers = [
            REGISTER,
            *(f"{REGISTER}-{number}" for number in range(2, registers + 1)),
        ]
        ports = {name: free_port() for name in self.registers}
        self.servers = [await self.network.open(name, port) for name, port in ports.items()]
        async with trio.open_nursery() as nursery:
            for (name, port), url in zip(ports.items(), self.servers, strict=True):
                several = ("--peers", ",".join(self.servers), "--advertise", url)
                nursery.start_soon(self._start, name, port, *(several if registers > 1 else ()))
        for number in range(1, brokers + 1):
            name, port = f"broker-{number}", free_port()
            url = await self.network.open(name, port)
            self.ids[name], self.urls[name] = number, url
            servers = ",".join(self.servers)
            await self._start(name, port, "--register", servers, "--advertise", url)

    async def _start_ring(self, brokers: int) -> None:
        """Start *brokers* brokers that form a cluster without a register."""
        ports = {f"broker-{number}": free_port() for number in range(1, brokers + 1)}
        for name, port in ports.items():
            self.urls[name] = await self.network.open(name, port)
        self.servers = list(self.urls.values())
        async with trio.open_nursery() as nursery:
            for name, port in ports.items():
                options = ("--join", ",".join(self.servers), "--advertise", self.urls[name])
                nursery.start_soon(self._start, name, port, *options)

    def deciding(self) -> str:
        """The name of the register that decides, or decided last, by what registers logged."""
        terms = {}
        for name in self.registers if len(self.registers) > 1 else ():
            lines = self.nodes[name].log().splitlines()
            found = [json.loads(line) for line in lines if '"this register is active"' in line]
            terms[name] = max((one["term"] for one in found), default=0)
        return max(terms, key=lambda name: terms[name], default=REGISTER)

    async def _start(self, name: str, port: int, *options: str) -> None:
        role = "register" if name in self.registers else "broker"
        machine = Machine(self._processes.directory / f"{name}.machine")
        listen = ("--listen", f"127.0.0.1:{port}")
        node = self._processes.node(name, role, *listen, *options, machine=machine)
        self.nodes[name] = node
        if role == "broker" and self._small_disks:
            self._mounted.append(mount_small_disk(node.data_dir))
        await in_thread(node.start)

    def close(self) -> None:
        """Give the small disks back; the nodes have to be gone."""
        while self._mounted:
            subprocess.run(["umount", "-l", str(self._mounted.pop())], check=False)

    @property
    def brokers(self) -> list[str]:
        """The names of the brokers."""
        return [name for name in self.nodes if name not in self.registers]

    def _pids(self) -> dict[str, int]:
        return {name: node.pid for name, node in self.nodes.items() if node.is_running}

    def broken_off(self) -> list[str]:
        """Lines of the nodes' logs that no failure excuses: a program that met the unforeseen."""
        found = []
        for name, node in self.nodes.items():
            for line in node.log().splitlines():
                if not line.startswith("{"):
                    if not line.startswith(("octopi-node: ", "Error: ")):
                        found.append(f"{name}: {line}")
                elif "exception" in (entry := json.loads(line)) or "traceback" in entry:
                    found.append(f"{name}: {line}")
        return found

    def errors(self) -> list[str]:
        """Lines of the nodes' logs at level error: with healthy files there are none."""
        return [
            f"{name}: {line}"
            for name, node in self.nodes.items()
            for line in node.log().splitlines()
            if '"level": "error"' in line
        ]


def mount_small_disk(directory: Path) -> Path:
    """Mount a small disk there.

    Raises:
        CannotMountError: if this process may not.
    """
    directory.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={_DISK_MIB}m", "tmpfs", str(directory)]
    try:
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise CannotMountError("there is no mount here") from error
    if done.returncode:
        raise CannotMountError(done.stderr.strip())
    return directory


def check_mounting(directory: Path) -> None:
    """Mount a small disk in *directory*, and give it back.

    Raises:
        CannotMountError: if this process may not.
    """
    tried = mount_small_disk(directory / "mounting")
    subprocess.run(["umount", str(tried)], check=True)


def fill_disk(data_dir: Path) -> Path:
    """Take all room that is left on the disk of *data_dir*; return the file to remove again."""
    filler = data_dir / "filler"
    with contextlib.suppress(OSError), filler.open("wb") as file:
        left = os.statvfs(data_dir)
        os.posix_fallocate(file.fileno(), 0, max(left.f_bavail * left.f_bsize, 1))
    with contextlib.suppress(OSError), filler.open("ab") as file:
        while True:
            file.write(bytes(4096))
            file.flush()
    return filler


async def in_thread(act: Callable[[], object]) -> None:
    """Wait for a process without keeping the clients from going on."""
    await trio.to_thread.run_sync(act)
