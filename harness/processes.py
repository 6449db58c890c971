"""Real node processes for tests and benchmarks: start, inspect, kill and restart them.

Each node has a data directory, and a file for what it logs.  It is ready when it says so on
standard output.  A node ends with the test even if the test process is killed, because it stops
when its standard input ends.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from harness.fork_server import ForkedProcess, ForkServer, fork_server
from harness.machines import Machine
from octopi.cli.free_ports import free_port
from octopi.cli.node_processes import node_command, node_environment, ready_url
from octopi.cli.secret_files import add_secret
from octopi.limits import JOIN_SECRET_BYTES

READY_TIMEOUT_S = 30.0
END_TIMEOUT_S = 20.0

_forks: list[ForkServer] = []
"""What forks nodes instead of executing the program; empty: nothing does."""


@contextmanager
def forked_nodes() -> Iterator[None]:
    """In this block, nodes start by a fork of a process that has imported the program, where their
    options allow it (`harness.fork_server`)."""
    with fork_server() as server:
        _forks.append(server)
        try:
            yield
        finally:
            _forks.remove(server)


def join_secret(directory: Path) -> Path:
    """The file with the join secret that all nodes below *directory* share.  It is made if there is
    none.  It is outside of the data directories, so it outlives each of them."""
    file = directory / "join-secret"
    if not file.exists():
        add_secret(file, os.urandom(JOIN_SECRET_BYTES))
    return file


class NodeProcess:
    """One node.  A restart keeps its data directory, its address and its options."""

    def __init__(
        self,
        directory: Path,
        name: str,
        role: str,
        *options: str,
        machine: Machine | None = None,
        files_max: int | None = None,
    ) -> None:
        """Describe the node; `start` runs it.  *options* may include ``--listen``.  A node on a
        *machine* can lose power; None runs it directly on this one.  *files_max* limits the file
        descriptors that it may open; None: the limit of this process."""
        self.name = name
        self.role = role
        self.data_dir = directory / name
        self.log_file = directory / f"{name}.log"
        self.url = ""
        """The address of the node; empty until it serves."""
        self.machine = machine
        self.files_max = files_max
        self.command: Callable[..., list[str]] = (
            node_command if machine is None else machine.node_command
        )
        """Makes the command line of the program from its arguments; change it to have the next
        start run another version of the program."""
        self._options = list(options)
        if "--join-secret" not in options:
            self._options += ["--join-secret", str(join_secret(directory))]
        self._listen = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def launch(self) -> None:
        """Start the process, and return without waiting until it serves."""
        if self._process is not None:
            assert self._process.poll() is not None, f"{self.name} is already running"
            self._gone(self._process)
        listen = [] if "--listen" in self._options else ["--listen", self._listen]
        arguments = ["--role", self.role, "--data-dir", str(self.data_dir), "--stop-at-eof"]
        arguments += [*listen, *self._options]
        # Most tests count topics and messages: those about the history turn it on.
        environment = {**node_environment(), "OCTOPI_HISTORY": "false"}
        directory = self.log_file.parent
        with self.log_file.open("ab") as log:
            if _forks and self._may_fork and _forks[-1].suits(environment):
                self._process = _forks[-1].start(
                    arguments, stderr=log.fileno(), cwd=directory, environment=environment
                )
                return
            limited = []
            if self.files_max is not None:
                limited = ["sh", "-c", 'ulimit -n "$0" && exec "$@"', str(self.files_max)]
            self._process = subprocess.Popen(
                limited + self.command(*arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=directory,
                env=environment,
                start_new_session=True,
            )

    @property
    def _may_fork(self) -> bool:
        return self.command is node_command and self.files_max is None

    def start(self) -> NodeProcess:
        """Start the process and wait until it serves."""
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the node says that it serves."""
        deadline = time.monotonic() + timeout_s
        stdout = self._running().stdout
        assert stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            assert left > 0, f"{self.name} did not serve within {timeout_s:g} s:\n{self.log()}"
            poll = select.poll()  # unlike `select`, it takes descriptors above 1,023
            poll.register(stdout, select.POLLIN)
            if poll.poll(left * 1000):
                byte = os.read(stdout.fileno(), 1)
                assert byte, f"{self.name} ended instead of serving:\n{self.log()}"
                line += byte
        url = ready_url(line.decode())
        assert url is not None, f"{self.name} printed {line!r}"
        self.url = url
        self._listen = url.removeprefix("ws://")

    def restart(self) -> None:
        """Start the node again, at its old address, and wait until it serves."""
        self.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    def rss_bytes(self) -> int:
        """The resident memory of the process now."""
        return self._status_bytes("VmRSS")

    def rss_bytes_max(self) -> int:
        """The largest resident memory that the process has had."""
        return self._status_bytes("VmHWM")

    def descriptors(self) -> list[str]:
        """What the process has open now: paths of files, and ``socket:`` with a number."""
        found = []
        for one in Path(f"/proc/{self.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
                found.append(str(one.readlink()))
        return found

    def socket_count(self) -> int:
        """The number of sockets that the process has open now."""
        return sum(one.startswith("socket:") for one in self.descriptors())

    def log(self) -> str:
        """All that the node has logged since its first start."""
        return self.log_file.read_text(errors="replace")

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._running().send_signal(number)

    def kill9(self) -> None:
        """Kill the process with SIGKILL, and return when it is gone."""
        process = self._running()
        process.kill()
        self._gone(process)

    def lose_power(self, randomness: random.Random) -> list[str]:
        """Kill the process and have its machine lose power; see
        `harness.machines.Machine.lose_power`."""
        assert self.machine is not None, f"{self.name} has no machine that could lose power"
        self.close()
        return self.machine.lose_power(self.data_dir, randomness)

    def terminate(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Stop the node with SIGTERM, wait for its end, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout_s)

    def wait(self, timeout_s: float = END_TIMEOUT_S) -> int:
        """Wait for the end of the process, and return its exit code."""
        process = self._running()
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not end within {timeout_s:g} s:\n{self.log()}"
            ) from None
        self._gone(process)
        return status

    def close(self) -> None:
        """Kill the process if it is running."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
            self._gone(self._process)

    def __enter__(self) -> NodeProcess:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> subprocess.Popen[bytes] | ForkedProcess:
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    def _gone(self, process: subprocess.Popen[bytes] | ForkedProcess) -> None:
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _status_bytes(self, field: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0]) * 1024
        raise AssertionError(f"{self.name} has ended")


class NodeProcesses:
    """The nodes of one test; see `node_processes`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.closed: list[Callable[[], object]] = []
        """The functions to call when all nodes have ended, the last one first."""
        self._nodes: list[NodeProcess] = []

    def node(
        self,
        name: str,
        role: str,
        *options: str,
        machine: Machine | None = None,
        files_max: int | None = None,
    ) -> NodeProcess:
        """A node that isn't started yet, and that is ended with the test; see `NodeProcess`."""
        node = NodeProcess(
            self.directory, name, role, *options, machine=machine, files_max=files_max
        )
        self._nodes.append(node)
        return node

    def register(
        self, name: str = "register", *options: str, files_max: int | None = None
    ) -> NodeProcess:
        """A register that serves.  It doesn't wait for brokers to report, unless *options* have
        ``--gather``."""
        gather = [] if "--gather" in options else ["--gather", "0"]
        return self.node(name, "register", *gather, *options, files_max=files_max).start()

    def broker(
        self,
        register: NodeProcess,
        name: str = "broker-1",
        *options: str,
        files_max: int | None = None,
    ) -> NodeProcess:
        """A broker that has joined *register*."""
        options = ("--register", register.url, *options)
        return self.node(name, "broker", *options, files_max=files_max).start()


@contextmanager
def node_processes(directory: Path) -> Iterator[NodeProcesses]:
    """Node processes with their data in *directory*.  They are killed at the end of the block."""
    nodes = NodeProcesses(directory)
    try:
        yield nodes
    finally:
        for node in reversed(nodes._nodes):
            node.close()
        for act in reversed(nodes.closed):
            act()
