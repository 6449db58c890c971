"""The server and client processes of a measurement, and their processor time.

A client process runs ``python -m benchmarks.client``.  It prints ``ready`` when it is connected,
begins when it reads a line, and prints its figures as JSON.  So several clients begin at once, and
what they do before isn't measured.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.machine_load import process_times

READY_TIMEOUT_S: Final = 300.0
"""This is long because clients that create 10,000 topics take minutes."""
CLIENT_TIMEOUT_S: Final = 120.0
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a server listens on *port*.

    Raises:
      RuntimeError: if *process* ended, or nothing listened in time.
    """
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"no server listened on port {port} within {READY_TIMEOUT_S:g} s")


@contextmanager
def running(
    command: list[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server process within the block; what it prints goes to *log*."""
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
    """Send SIGTERM to the process group of *process*, and SIGKILL if it takes too long to end."""
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
        """Start the process, in one of the roles that the system's module has."""
        self._what = f"{system} {role}"
        self._complaints = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        # In a session of its own: Ctrl-C is for this process alone, which closes its clients.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client", system, role, json.dumps(parameters)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            cwd=Path(__file__).parents[1],
            text=True,
            start_new_session=True,
        )

    def wait_ready(self) -> None:
        """Wait until the client is connected."""
        self._expect("ready")

    def go(self) -> None:
        """Let the client begin."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def figures(self) -> dict[str, float]:
        """Wait until the client has finished, and return what it measured.

        Raises:
          RuntimeError: if it failed, or took longer than `CLIENT_TIMEOUT_S`.
        """
        try:
            output, _ = self._process.communicate(timeout=CLIENT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self._what} took more than {CLIENT_TIMEOUT_S:g} s") from None
        if self._process.returncode:
            raise RuntimeError(f"{self._what} failed{self._last_complaint()}")
        figures: dict[str, float] = json.loads(output)
        return figures

    def close(self) -> None:
        """Kill the process and its children if it is running."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        self._complaints.close()

    def _expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != word:
            self._process.wait(10)
            raise RuntimeError(
                f"{self._what} printed {line!r} instead of {word!r}{self._last_complaint()}"
            )

    def _last_complaint(self) -> str:
        """The last line that the process wrote to standard error, after a colon."""
        self._complaints.seek(0)
        lines = self._complaints.read().split("\n")
        return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")


def cpu_s(pid: int) -> float:
    """The processor time that process *pid* has used so far, in seconds."""
    return process_times(Path(f"/proc/{pid}/stat").read_text()).own / _TICKS_PER_S


def minor_faults(pid: int) -> int:
    """The minor page faults of process *pid* so far."""
    return process_times(Path(f"/proc/{pid}/stat").read_text()).minor_faults


def main_thread_s(pid: int) -> float:
    """The processor time of a node's main thread, in seconds.

    That thread does everything except waiting for devices.  Its time is exact to a nanosecond,
    where `cpu_s` counts ticks.
    """
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
