"""Runs several brokers of one machine as processes of their own, and watches them.

One process uses one core.  A *worker* is a broker like any other, with its own port and data
directory; all have the label of the machine, so that no two of them get replicas of one partition.
A worker that ends is started again, and one that hangs is killed first.  If this process is killed,
the workers stop by themselves, because their standard input ends.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import trio

from octopi.cli.config import BrokerSettings
from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.node_processes import first_line, node_command, ready_url
from octopi.cli.watchdog import WATCHDOG_VARIABLES, Watchdog, watchdog
from octopi.limits import WORKER_SILENCE_S
from octopi.logger import get_logger
from octopi.operating_system import SystemRandomness
from octopi.retry import Backoff
from octopi.transport.addresses import host_and_port, is_secure, listen_address, server_address

_log = get_logger(__name__)

_DIRECTORY: Final = "worker-"
"""Followed by the number of the worker."""
_IDENTITY: Final = "identity"
"""The file that each broker has in its data directory."""


@attrs.frozen
class WorkerOptions:
    """How the workers of this machine are started."""

    arguments: list[str]
    """The command line of this process; each worker has the same one, with other addresses, ids and
    directories behind it."""
    settings: BrokerSettings
    metrics_listen: str = ""
    """The address for metrics of the first worker; empty: none has one."""
    silence_s: float = WORKER_SILENCE_S
    """How long the tasks of a worker may have no turn (s)."""

    @property
    def count(self) -> int:
        """How many workers there are."""
        return self.settings.workers

    def directory(self, number: int) -> Path:
        """The data directory of worker *number*, which counts from 1."""
        return Path(self.settings.data_dir) / f"{_DIRECTORY}{number}"

    def command(self, number: int) -> list[str]:
        """The command line of worker *number*.

        Raises:
          InvalidOptionError: if an address can't be one.
        """
        settings, behind = self.settings, number - 1
        own = {
            "--workers": "1",
            "--data-dir": str(self.directory(number)),
            "--listen": _listening(settings.listen, behind),
            "--host": settings.host or socket.gethostname(),
        }
        if settings.advertise:
            own["--advertise"] = _advertised(settings.advertise, behind)
        if settings.id is not None:
            own["--id"] = str(settings.id + behind)
        if self.metrics_listen:
            own["--metrics-listen"] = _listening(self.metrics_listen, behind)
        flags = [part for flag, value in own.items() for part in (flag, value)]
        return node_command(*self.arguments, *flags, "--stop-at-eof")

    def check(self) -> None:
        """Check that the data directory is one of so many workers, or new.

        Raises:
          CommandError: if it has the data of one broker, or of more workers.
        """
        directory, count = self.settings.data_dir, self.count
        if (Path(directory) / _IDENTITY).exists():
            raise CommandError(
                f"{directory} has the data of one broker, which {count} workers would not read: "
                "leave --workers out, or name another --data-dir and move the broker's partitions "
                "(octopi-node partitions move)",
                ExitCode.USAGE,
            )
        last = last_worker(directory)
        if last > count:
            raise CommandError(
                f"{directory} has the data of {last} workers, and --workers {count} would leave "
                f"out that of worker {count + 1}: start {last} workers; to have fewer, move the "
                "partitions of the last ones (octopi-node partitions move), remove these brokers "
                "(octopi-node brokers remove), and then their directories",
                ExitCode.USAGE,
            )


def last_worker(directory: str) -> int:
    """The greatest number of a worker whose data are in *directory*; 0: there is none."""
    names = (one.parent.name for one in Path(directory).glob(f"{_DIRECTORY}*/{_IDENTITY}"))
    numbers = (name.removeprefix(_DIRECTORY) for name in names)
    return max((int(one) for one in numbers if one.isdecimal()), default=0)


def check_single(directory: str) -> None:
    """Check that *directory* isn't one of workers, as a single broker wouldn't read their data.

    Raises:
      CommandError: if it is.
    """
    if last := last_worker(directory):
        raise CommandError(
            f"{directory} has the data of workers, which a single broker would not read: start it "
            f"with --workers {last}, or name another --data-dir",
            ExitCode.USAGE,
        )


def _listening(address: str, behind: int) -> str:
    host, port = listen_address(address)
    return host_and_port(host, port + behind if port else 0)


def _advertised(url: str, behind: int) -> str:
    host, port = server_address(url)
    scheme = "wss" if is_secure(url) else "ws"
    return f"{scheme}://{host_and_port(host, port + behind)}"


async def run_workers(
    options: WorkerOptions, stop: trio.Event, ready: Callable[[str], None]
) -> None:
    """Run all workers until *stop* is set, then let them hand over and wait until they have ended.
    *ready* is called once, when all serve, with their addresses, separated by commas.  Cancelled,
    it kills them.

    Raises:
      CommandError: if a worker ends before it has served for the first time.
      InvalidOptionError: if an address can't be one.
    """
    options.check()
    commands = {number: options.command(number) for number in range(1, options.count + 1)}
    urls: dict[int, str] = {}

    def serves(number: int, url: str) -> None:
        is_first = number not in urls
        urls[number] = url
        if is_first and len(urls) == options.count:
            ready(",".join(urls[one] for one in sorted(urls)))

    async with trio.open_nursery() as nursery:
        for number, command in commands.items():
            worker = _Worker(number, command, options.silence_s, serves)
            nursery.start_soon(worker.run, stop)


class _Worker:
    """Keeps one worker running."""

    def __init__(
        self,
        number: int,
        command: list[str],
        silence_s: float,
        serves: Callable[[int, str], None],
    ) -> None:
        self._number = number
        self._command = command
        self._silence_s = silence_s
        self._serves = serves
        self._has_served = False
        self._backoff = Backoff(SystemRandomness())

    async def run(self, stop: trio.Event) -> None:
        """Start it, and again whenever it ends, until *stop* is set; then wait for its end."""
        while not stop.is_set():
            code = await self._run_once(stop)
            if stop.is_set():
                return
            if not self._has_served:
                raise CommandError(
                    f"worker {self._number} ended before it served, with exit code {code}: the "
                    "lines above say why"
                )
            wait_s = self._backoff.next_s()
            _log.warning(
                "worker ended; it is started again",
                worker=self._number,
                exit_code=code,
                wait_s=round(wait_s, 3),
            )
            with trio.move_on_after(wait_s):
                await stop.wait()

    async def _run_once(self, stop: trio.Event) -> int:
        """Run the process to its end; return its exit code."""
        async with watchdog(self._silence_s) as watched:
            return await self._run_watched(watched, stop)

    async def _run_watched(self, watched: Watchdog, stop: trio.Event) -> int:
        # A service manager that watches this process shall not hear from the workers.
        inherited = {
            name: value for name, value in os.environ.items() if name not in WATCHDOG_VARIABLES
        }
        process = await trio.lowlevel.open_process(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**inherited, **watched.variables},
            start_new_session=True,  # a Ctrl-C at the terminal is for this process
        )
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, process, stop)
                nursery.start_soon(self._kill_if_silent, process, watched)
                code = await process.wait()
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
                for stream in (process.stdin, process.stdout):
                    assert stream is not None
                    await stream.aclose()
        return code

    async def _watch(self, process: trio.Process, stop: trio.Event) -> None:
        """Tell when it serves, and stop it at *stop*: with the end of its standard input, as the
        service manager may send it a SIGTERM besides, and a second one would stop it at once."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._await_ready, process)
            await stop.wait()
            assert process.stdin is not None
            await process.stdin.aclose()

    async def _kill_if_silent(self, process: trio.Process, watched: Watchdog) -> None:
        """Kill it if its tasks have no turn: it would hold on to its port and data directory."""
        await watched.wait_for_silence()
        _log.error("worker hangs; it is killed", worker=self._number, silent_s=watched.silence_s)
        process.kill()

    async def _await_ready(self, process: trio.Process) -> None:
        url = ready_url(await first_line(process))
        if url is not None:
            self._has_served = True
            self._backoff.reset()
            self._serves(self._number, url)


def command_line() -> list[str]:
    """The arguments of this process."""
    return sys.argv[1:]
