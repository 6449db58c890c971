"""Processes of a measurement: servers and clients, and the processor time that they took.

A client process is ``python -m benchmarks.client``: it prints ``ready`` when it is connected,
begins when it reads a line, and prints its figures as JSON.  So several begin at once, and
nothing that comes before is measured.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

READY_TIMEOUT_S: Final = 300.0
"""To make 10,000 topics takes minutes."""
CLIENT_TIMEOUT_S: Final = 120.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at right now."""
    with ExitStack() as sockets:
        ports = []
        for _ in range(count):
            one = sockets.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            ports.append(int(one.getsockname()[1]))
        return ports


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return when somebody listens at *port*.

    Raises:
      RuntimeError: if *process* ended, or nobody listened in time.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with code {process.returncode}")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listened at port {port} within {READY_TIMEOUT_S:g} s")


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A server process within the block; what it prints goes to *log*."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM to all that *process* started, SIGKILL if that takes long."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
        break
    process.wait()


class Client:
    """One client process."""

    def __init__(self, system: str, role: str, parameters: Mapping[str, Any]) -> None:
        """Start it; *role* is a function of the system's client."""
        self._what = f"{system} {role}"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client", system, role, json.dumps(parameters)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
            text=True,
        )

    def wait_ready(self) -> None:
        """Return when it is connected."""
        self._expect("ready")

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def figures(self) -> dict[str, float]:
        """What it measured, once it is done.

        Raises:
          RuntimeError: if it failed.
        """
        try:
            output, _ = self._process.communicate(timeout=CLIENT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._what} took more than {CLIENT_TIMEOUT_S:g} s") from None
        if self._process.returncode:
            raise RuntimeError(f"{self._what} failed")
        figures: dict[str, float] = json.loads(output)
        return figures

    def close(self) -> None:
        """End it if it lives."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != word:
            raise RuntimeError(f"{self._what} said {line!r} instead of {word!r}")


def cpu_s(pid: int) -> float:
    """Processor time that *pid* has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def main_thread_s(pid: int) -> float:
    """Processor time of the thread that does everything but to wait for devices: in
    nanoseconds, where `cpu_s` counts ticks."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
