"""Nodes as processes of their own: start, wait until they serve, kill, stop.

No node outlives the process that started it.  The nodes get SIGTERM when the block ends.  They also
stop by themselves when their standard input ends; the system closes it even if the process that
started them is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from octopi.cli.failures import CommandError
from octopi.operating_system import open_private

READY_TIMEOUT_S: Final = 30.0
"""From the start of a process until it reports that it serves; enough for slow disks and
machines."""

STOP_TIMEOUT_S: Final = 15.0
"""From SIGTERM until the process has ended; after this time it is killed."""

_CHOICES: Final = frozenset(["OCTOPI_KERNELS", "OCTOPI_PLAIN_WEBSOCKET"])


def node_command(*arguments: str) -> list[str]:
    """The command line that runs this program, as this process was started."""
    if getattr(sys, "frozen", False):
        return [sys.executable, *arguments]
    return [sys.executable, "-m", "octopi_node", *arguments]


def node_environment() -> dict[str, str]:
    """The environment of a node process: that of this process, without settings for this process,
    but with the choice between two ways of doing the same."""
    # Beside these, an executable that is one file has set variables of its own for this process, by
    # which the node runs from the files that are unpacked already, as one process.  Otherwise it
    # would be two, and the death of the first would leave the node.
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("OCTOPI_") or name in _CHOICES
    }


def ready_url(line: str) -> str | None:
    """The url in the *line* that a node prints when it serves; None if *line* is another one."""
    words = line.split()
    return words[2] if len(words) == 3 and words[0] == "ready" else None


@attrs.define
class NodeProcesses:
    """The node processes of one block; see `node_processes`."""

    directory: Path
    """Has for each node its data directory and its log, under the node's name."""
    _nursery: trio.Nursery
    _running: dict[str, trio.Process] = attrs.field(factory=dict)

    async def start(self, name: str, role: str, *options: str) -> str:
        """Start a node at a free port of this machine; return its url when it serves.

        If the node ends by itself later, the block ends with a `CommandError`.

        Raises:
          CommandError: if the node ended or didn't serve in time.
        """
        arguments = ["--role", role, "--listen", "127.0.0.1:0", "--stop-at-eof"]
        arguments += ["--data-dir", str(self.directory / name), *options]
        with open_private(self._log_file(name), "ab") as log:
            process = await trio.lowlevel.open_process(
                node_command(*arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=self.directory,
                env=node_environment(),
                start_new_session=True,  # a Ctrl-C at the terminal is handled by this process
            )
        self._running[name] = process
        with trio.move_on_after(READY_TIMEOUT_S):
            line = await first_line(process)
            url = ready_url(line)
            if url is not None:
                self._nursery.start_soon(self._watch, name, process)
                return url
            raise CommandError(f"{name} did not start: {self._last_words(name)}")
        raise CommandError(
            f"{name} did not serve within {READY_TIMEOUT_S:g} s: {self._last_words(name)}"
        )

    async def kill(self, name: str) -> None:
        """End a node with SIGKILL; return when it has ended.  It can be started again."""
        process = self._running[name]
        process.kill()
        del self._running[name]
        with trio.CancelScope(shield=True):
            await process.wait()
            await _close_pipes(process)

    async def stop(self) -> None:
        """Stop all nodes, brokers and register at the same time; return when all have ended."""
        stopping = list(self._running.values())
        self._running.clear()
        async with trio.open_nursery() as nursery:
            for process in stopping:
                nursery.start_soon(_stop, process)

    async def _watch(self, name: str, process: trio.Process) -> None:
        code = await process.wait()
        if self._running.get(name) is process:  # otherwise `kill` or `stop` ended it
            raise CommandError(f"{name} ended by itself, code {code}: {self._last_words(name)}")

    def _log_file(self, name: str) -> Path:
        return self.directory / f"{name}.log"

    def _last_words(self, name: str) -> str:
        lines = self._log_file(name).read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it said nothing"


@asynccontextmanager
async def node_processes(directory: Path) -> AsyncIterator[NodeProcesses]:
    """Processes of nodes with their data in *directory*, all ended with the block."""
    async with trio.open_nursery() as nursery:
        nodes = NodeProcesses(directory, nursery)
        try:
            yield nodes
        finally:
            with trio.CancelScope(shield=True):
                await nodes.stop()


async def first_line(process: trio.Process) -> str:
    """The first line that *process* prints, or a part of it if the process ended."""
    assert process.stdout is not None
    line = b""
    while b"\n" not in line and (more := await process.stdout.receive_some()):
        line += more
    return line.decode(errors="replace")


async def _stop(process: trio.Process) -> None:
    if process.returncode is None:
        process.terminate()
    with trio.move_on_after(STOP_TIMEOUT_S):
        await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await _close_pipes(process)


async def _close_pipes(process: trio.Process) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            await stream.aclose()
