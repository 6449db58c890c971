"""What tests of the command line share: the program in this process, and real nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner, Result

from harness.processes import NodeProcess, NodeProcesses, node_processes
from octopi.cli.invocation import Invocation
from octopi.cli.main import cli
from octopi_node import find_search

PARQUET_TESTS = ["test_parquet_files.py"]
if find_spec("pyarrow") is None and os.environ.get("CI"):
    raise RuntimeError("pyarrow is not installed, and CI leaves out no test of Parquet files")
collect_ignore = PARQUET_TESTS if find_spec("pyarrow") is None else []

Program = Callable[..., Result]
"""Runs the program with these arguments."""


@pytest.fixture(autouse=True)
def _no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OCTOPI_"):
            monkeypatch.delenv(name)
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


Consume = Callable[..., bytes]
"""What `consume` prints with these arguments."""


@pytest.fixture
def server(cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster, which every command finds by itself."""
    monkeypatch.setenv("OCTOPI_SERVER", cluster.url)
    monkeypatch.setenv("OCTOPI_TIMEOUT_S", "20")
    return cluster.url


@pytest.fixture
def topic(request: pytest.FixtureRequest, server: str) -> str:
    """A topic of this test alone."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:150]


@pytest.fixture
def consume(program: Program, capfdbinary: pytest.CaptureFixture[bytes]) -> Consume:
    def run(*arguments: str) -> bytes:
        capfdbinary.readouterr()
        result = program("consume", *arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return capfdbinary.readouterr().out

    return run


def produce(program: Program, tmp_path: Path, topic: str, data: bytes, *options: str) -> str:
    """Produce the lines of *data*; return what is said about it."""
    file = tmp_path / "lines"
    file.write_bytes(data)
    result = program("produce", topic, "-f", str(file), *options)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    return result.stderr


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "octopi_node", *arguments]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore:
        terminalreporter.write_line(
            f"tests/cli/{' '.join(collect_ignore)} left out: pyarrow is not installed "
            "(make .venv/.spark)"
        )
