"""A shell that commands are typed into, and a terminal for a command that keeps running."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

BLOCK_TIMEOUT_S = 150.0
"""The slowest block moves all replicas of a broker."""

INTERRUPT_TIMEOUT_S = 30.0
"""A node ends gracefully in less, on a busy machine, too."""


class Shell:
    """A real shell, which keeps its variables, functions and background jobs from one text to the
    next.  A command that fails ends it."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._directory = directory
        self._errors = directory / "typed.err"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                ["bash", "-eu"],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._count = 0

    def type(self, text: str, place: str) -> str:
        """Have the shell carry *text* out, and return what it printed on standard output.

        Raises:
          AssertionError: a command failed, or it took longer than `BLOCK_TIMEOUT_S`.
        """
        self._count += 1
        script = self._directory / f"typed-{self._count}.sh"
        script.write_text(text)
        end = f"-- the end of block {self._count} --"
        assert self._process.stdin is not None
        typed = f"source {script} </dev/null\nprintf '\\n%s\\n' '{end}'\n"
        self._process.stdin.write(typed.encode())
        self._process.stdin.flush()
        assert self._process.stdout is not None
        said = read_until(self._process.stdout.fileno(), end)
        output = said.removesuffix("\n").removesuffix(end).removesuffix("\n")
        assert said.rstrip("\n").endswith(end), (
            f"{place}: a command failed, or did not end:\n{text}\n{output}\n"
            f"{self._errors.read_text(errors='replace')[-4000:]}"
        )
        return output

    def close(self) -> None:
        """Kill the shell and all that runs in its background."""
        _kill(self._process)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()


class Terminal:
    """A shell of its own with a command that keeps running."""

    def __init__(self, directory: Path, environment: dict[str, str], text: str, ready: str) -> None:
        """Start it, and wait until it printed *ready*.

        Raises:
          AssertionError: it ended instead, or was not ready in time.
        """
        self._process = subprocess.Popen(
            ["bash", "-euc", text],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            # What runs in the background of a shell may ignore Ctrl-C, and hands that on.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        assert self._process.stdout is not None
        self.output = read_until(self._process.stdout.fileno(), ready)
        """What it printed until it was ready."""
        if ready not in self.output:
            self.close()
            raise AssertionError(f"{text}\ndid not print {ready!r}:\n{self.output}")

    def interrupt(self, timeout_s: float = INTERRUPT_TIMEOUT_S) -> None:
        """Press Ctrl-C, and wait until the command has ended.  It is killed if it goes on.

        Raises:
          AssertionError: it ended with an error, or not within *timeout_s*.
        """
        os.killpg(self._process.pid, signal.SIGINT)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the command goes on, {timeout_s:g} s after Ctrl-C: {self._process.args!r}"
            ) from None
        finally:
            # What is left open warns in a later test of the same worker, which then fails instead.
            self.close()
        assert code in {0, 130}, f"the command ended with code {code} at Ctrl-C"

    def close(self) -> None:
        """Kill it."""
        _kill(self._process)


def read_until(descriptor: int, end: str) -> str:
    """What comes from *descriptor* until it says *end*, closes, or the time is over."""
    said = b""
    deadline = time.monotonic() + BLOCK_TIMEOUT_S
    while end.encode() not in said and (left := deadline - time.monotonic()) > 0:
        poll = select.poll()  # unlike `select`, it takes descriptors above 1,023
        poll.register(descriptor, select.POLLIN)
        if poll.poll(left * 1000):
            part = os.read(descriptor, 1 << 16)
            if not part:
                break
            said += part
    return said.decode(errors="replace")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill the process group of *process*."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
