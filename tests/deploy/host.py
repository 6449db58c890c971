"""A host on which the commands of deploy/ run as processes: its own paths, ports and names."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import attrs

from octopi.cli.node_processes import node_environment, ready_url

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
_PATHS: Final = ("/etc/octopi", "/var/lib/octopi")
_STOP_TIMEOUT_S: Final = 30.0


@attrs.define
class Host:
    """Stands for the machine, container or pod of each node; all are in *root*."""

    root: Path
    _running: dict[str, subprocess.Popen[str]] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for path in (*_PATHS, "/usr/local/bin"):
            self.path(path).mkdir(parents=True)
        self._install(self.path("/usr/local/bin/octopi-node"))

    def _install(self, program: Path) -> None:
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m octopi_node "$@"\n')
        program.chmod(0o755)

    def path(self, path: str) -> Path:
        """Where this absolute path of a node is."""
        return self.root / path.lstrip("/")

    def named(self, path: str) -> str:
        """How the programs of this host name this absolute path of a node."""
        return str(self.path(path))

    def here(self, text: str, places: Mapping[str, str]) -> str:
        """*text* of a file in deploy/, with the paths of this host, and *places*: the address of
        this host for each address in the text."""
        for path in (*_PATHS, "/usr/local/bin"):
            text = text.replace(path, self.named(path))
        for theirs, ours in places.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(theirs)}\b", ours, text)
        return text

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The environment of a node with *variables*."""
        path = f"{self.path('/usr/local/bin')}:{os.environ['PATH']}"
        return {**node_environment(), **variables, "PATH": path}

    def command_line(self, command: Sequence[str]) -> list[str]:
        """The command line of this machine that runs *command* on the host."""
        return [*command]

    def run(self, command: Sequence[str], variables: Mapping[str, str], code: int = 0) -> str:
        """Run *command* to its end; what it printed."""
        done = subprocess.run(
            self.command_line(command),
            env=self.environment(variables),
            cwd=self.path("/etc/octopi"),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def launch(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start the node *name*."""
        with (self.root / f"{name}.log").open("a") as log:
            self._running[name] = subprocess.Popen(
                self.command_line(command),
                env=self.environment(variables),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def url(self, name: str) -> str:
        """Where the node *name* serves, once it does."""
        stdout = self._running[name].stdout
        assert stdout is not None
        url = ready_url(stdout.readline())
        assert url is not None, (self.root / f"{name}.log").read_text()
        return url

    def signal(self, name: str) -> None:
        """Ask the node *name* to stop."""
        self._running[name].send_signal(signal.SIGTERM)

    def wait(self, name: str) -> int:
        """Wait until the node *name* has stopped; its exit code."""
        process = self._running.pop(name)
        process.communicate(timeout=_STOP_TIMEOUT_S)
        return process.returncode

    def kill9(self, name: str) -> None:
        """End the node *name* with SIGKILL; return when it is gone."""
        process = self._running.pop(name)
        process.kill()
        process.communicate()

    def kill(self) -> None:
        """End what still runs."""
        for name in list(self._running):
            self.kill9(name)


HostKind = TypeVar("HostKind", bound=Host)


@contextmanager
def host(root: Path) -> Iterator[Host]:
    """A host, whose processes end with the block."""
    with ended(Host(root)) as made:
        yield made


@contextmanager
def ended(made: HostKind) -> Iterator[HostKind]:
    """The host *made*, whose processes end with the block."""
    try:
        yield made
    finally:
        made.kill()


def free_addresses(count: int) -> list[str]:
    """Addresses of this machine at which nothing listens."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in listeners]
    for listener in listeners:
        listener.close()
    return addresses
