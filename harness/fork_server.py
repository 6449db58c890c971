"""Starts node processes for tests by forking a process that has imported the program already.

Importing takes most of the time of a node's start, and tests start some thousand nodes.  A forked
node is a process as any other: it has its own session, directory, environment and descriptors, and
is killed as any other.  Where the start itself is tested or measured, nodes are executed.

The server is a process of its own, because a fork has only the thread that forks, and tests have
several.  A request is one message on a socket, with the three standard descriptors of the node; the
answer is the process id.  The server is the parent of all nodes, so it is asked for the exit status
of one that has ended (which a pidfd tells), and only then is the process id free again.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, Final

_REQUEST_BYTES_MAX: Final = 200_000
_ROOT: Final = Path(__file__).resolve().parent.parent

_OF_THE_PROGRAM: Final = ("LD_", "MALLOC", "OCTOPI_KERNELS", "PYTHON", "VIRTUAL_ENV", "PATH")
"""Beginnings of the names of variables that are read at the start of a program, before or while it
is imported."""


class ForkedProcess:
    """A process that a server has forked; as `subprocess.Popen`, as far as tests use that."""

    def __init__(self, server: ForkServer, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdin = os.fdopen(stdin, "wb", 0)
        self.stdout = os.fdopen(stdout, "rb")
        self._server = server
        self._pidfd = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None: the process is running."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its exit status.

        Raises:
          subprocess.TimeoutExpired: if it did not end within *timeout* seconds.
        """
        status = self._ended(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return status

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, signal.Signals(number))

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._pidfd, select.POLLIN)
            if poll.poll(None if timeout_s is None else timeout_s * 1000):
                self.returncode = self._server.status(self.pid)
                os.close(self._pidfd)
        return self.returncode


class ForkServer:
    """The client of a server, which starts with the first node."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._program: dict[str, str] = {}

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a node with this environment can be forked: that program must be the one that
        the server has imported."""
        return self._process is None or _of_the_program(environment) == self._program

    def start(
        self,
        arguments: Sequence[str],
        *,
        stderr: int,
        cwd: Path,
        environment: Mapping[str, str],
    ) -> ForkedProcess:
        """Start ``octopi-node`` with *arguments*; its standard input and output are pipes."""
        of_node, stdin = os.pipe()
        stdout, of_node_out = os.pipe()
        request = {"arguments": [*arguments], "cwd": str(cwd), "environment": {**environment}}
        with self._lock:
            if self._process is None:
                self._begin(environment)
            pid = self._asked(request, [of_node, of_node_out, stderr])
        os.close(of_node)
        os.close(of_node_out)
        return ForkedProcess(self, pid, stdin, stdout)

    def status(self, pid: int) -> int:
        """The exit status of a node that has ended."""
        with self._lock:
            return self._asked({"ended": pid}, [])

    def close(self) -> None:
        """End the server.  Nodes end when their standard input does."""
        if self._process is not None and self._socket is not None:
            self._socket.close()
            self._process.wait()

    def _begin(self, environment: Mapping[str, str]) -> None:
        self._socket, of_server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._program = _of_the_program(environment)
        with of_server:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.fork_server", str(of_server.fileno())],
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                env={**environment},
                pass_fds=[of_server.fileno()],
                start_new_session=True,
            )

    def _asked(self, request: Mapping[str, object], descriptors: list[int]) -> int:
        assert self._socket is not None
        message = json.dumps(request).encode()
        assert len(message) <= _REQUEST_BYTES_MAX
        socket.send_fds(self._socket, [message], descriptors)
        answer = self._socket.recv(100)
        assert answer, "the server of forks has ended"
        return int(answer)


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """A server that ends with the block."""
    server = ForkServer()
    try:
        yield server
    finally:
        server.close()


_IMPORTED: Final = (
    "octopi.cli.broker_nodes",
    "octopi.cli.commands.serve",
    "octopi.cli.main",
    "octopi.cli.node_log",
    "octopi.cli.register_nodes",
)


def _of_the_program(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_OF_THE_PROGRAM)}


def serve(requests: socket.socket) -> None:
    """Fork a node for each request until the other side has closed the socket."""
    for name in _IMPORTED:
        import_module(name)
    gc.freeze()  # else each node collects what is imported, and has a copy of its pages
    while True:
        message, descriptors, _, _ = socket.recv_fds(requests, _REQUEST_BYTES_MAX, 3)
        if not message:
            return
        request = json.loads(message)
        if (ended := request.get("ended")) is not None:
            _, status = os.waitpid(ended, 0)
            requests.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if not pid:
            requests.close()
            _become(request, descriptors)
            return
        for one in descriptors:
            os.close(one)
        requests.send(str(pid).encode())


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the program in this process, as if it were executed."""
    import octopi_node

    os.setsid()
    for number, one in enumerate(descriptors):
        os.dup2(one, number)
        os.close(one)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [octopi_node.__file__, *request["arguments"]]
    octopi_node.main()


if __name__ == "__main__":
    sys.path.pop(0)  # this directory, by which `-m` has found the module
    with socket.socket(fileno=int(sys.argv[1])) as ours:
        serve(ours)
