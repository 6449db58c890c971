"""One Spark for all of these tests, and one cluster of real processes.

Where there is no Java, or pyspark is not installed, they are left out, in one line; in CI that
is a failure.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from harness.processes import node_processes
from harness.spark_cluster import Cluster
from octopi.spark.session import SMALL_JOB, JavaMissingError, java_version, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _why_not() -> str:
    missing = [name for name in ("pyspark", "pyarrow", "numpy") if find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (make .venv/.spark)"
    try:
        java_version()
    except JavaMissingError as error:
        return str(error)
    return ""


WHY_NOT = _why_not()
if WHY_NOT and os.environ.get("CI"):
    raise RuntimeError(f"the Spark tests can't run, and CI leaves out nothing: {WHY_NOT}")
collect_ignore_glob = ["test_*.py"] if WHY_NOT else []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if WHY_NOT:
        terminalreporter.write_line(f"tests/spark left out: {WHY_NOT}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/spark" in item.path.as_posix() and not item.get_closest_marker("timeout"):
            # Starting Java, and each kind of worker, takes minutes on a busy machine.
            item.add_marker(pytest.mark.timeout(600))


DESCRIPTORS_MAX = 900
"""Spark's driver waits with select(), which knows no descriptor above 1,023: with more open files
it would wait for its Java for ever, without a word."""


@pytest.fixture(autouse=True)
def _few_files_are_open() -> None:
    count = len(os.listdir("/proc/self/fd"))
    assert count <= DESCRIPTORS_MAX, f"tests before this one left {count} files open"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = SMALL_JOB | {
        "spark.driver.memory": "1g",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.showConsoleProgress": "false",
    }
    session = spark_session("tests", master="local[2,2]", settings=settings)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        yield Cluster(register, nodes.broker(register))
