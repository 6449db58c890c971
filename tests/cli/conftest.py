"""What tests of the command line share: the program in this process, and real nodes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search

Program = Callable[..., Result]
"""Runs the program with these arguments."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OCTOPI_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def program() -> Program:
    """The program, run in this process: `.exit_code`, `.stdout`, `.stderr`."""

    def run(*arguments: str, **settings: object) -> Result:
        invocation = Invocation(find_search=find_search)
        return CliRunner().invoke(cli, arguments, obj=invocation, **settings)  # type: ignore[arg-type]

    return run


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeProcesses]:
    """Node processes of one test."""
    with node_processes(tmp_path) as processes:
        yield processes


@attrs.frozen
class RunningCluster:
    """A register and a broker as processes."""

    register: NodeProcess
    broker: NodeProcess

    @property
    def url(self) -> str:
        """What clients need."""
        return self.register.url


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    """A cluster for tests that leave it as they found it, but for topics of their own."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as processes:
        register = processes.register()
        yield RunningCluster(register, processes.broker(register))
