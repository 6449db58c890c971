"""The examples in the document about Spark work as printed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.spark_cluster import Cluster
from octopi.cli.node_processes import node_environment
from octopi.spark.options import READ, WRITE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]

TEXT = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the start of a JVM; for long jobs it would be the wrong thing."""


TYPE = """
import shlex, sys
from octopi.cli.main import main
from octopi_node import find_search
for line in sys.argv[1:]:
    program, *arguments = shlex.split(line)
    assert program == "octopi-node"
    try:
        main(find_search, arguments)
    except SystemExit as end:
        if end.code:
            raise
"""
"""Types lines one after the other, with one JVM for all of them."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_documented_programs_run(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, stream, subscribed, files = blocks("python")

    def run(program: str) -> str:
        for there, here in {
            "ws://127.0.0.1:7000": cluster.url,
            "/var/lib/pipelines": str(tmp_path),
            "/var/lib/octopi/broker": str(cluster.broker.data_dir),
        }.items():
            program = program.replace(there, here)
        exec(compile(program, "docs/spark.md", "exec"), {})
        return capsys.readouterr().out

    shown = run(table)
    assert re.search(r"\|customer-7\|2 +\|", shown)
    assert re.search(r"\|customer-8\|1 +\|", shown)
    run(stream)
    copied = [(one.key, one.value) for one in cluster.messages("large-orders")]
    assert sorted(copied) == [(b"customer-7", b"2 hats"), (b"customer-7", b"3 umbrellas")]
    run(subscribed)
    assert spark.read.parquet(str(tmp_path / "billing/rows")).count() == 3
    place = cluster.ask(lambda client: client.admin.describe_subscription("orders", "billing"))
    assert place.lag_bytes == 0
    cluster.broker.terminate()
    try:
        shown = run(files)
    finally:
        cluster.broker.restart()
    assert re.search(r"\|large-orders\| +\d+\| +2\|", shown)


@pytest.mark.slow
def test_the_documented_job_commands_run(cluster: Cluster, tmp_path: Path) -> None:
    (script,) = [block for block in blocks("sh") if "pipeline" in block]
    first, *jobs = script.splitlines()
    assert first == "seq 10000 | octopi-node produce numbers"
    cluster.fill("numbers", [b"%d" % n for n in range(1, 10_001)], key=lambda _: None)
    shutil.copytree(cluster.broker.data_dir, tmp_path / "data" / "broker-1")
    typed = subprocess.run(
        [sys.executable, "-c", TYPE, *jobs],
        cwd=tmp_path,
        env=node_environment() | {"OCTOPI_SERVER": cluster.url, "JAVA_TOOL_OPTIONS": QUICK},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert typed.returncode == 0, typed.stderr
    assert "archived 10,000 messages" in typed.stdout
    assert "10,000 messages are in numbers-again" in typed.stdout
    assert "no fault" in typed.stdout
    assert "20 runs" in typed.stdout
    values = [int(one.value) for one in cluster.messages("numbers-again")]
    assert values == list(range(1, 10_001))
    assert (tmp_path / "rates.html").read_text(encoding="utf-8").count("<svg") == 2


def test_every_option_is_documented() -> None:
    documented = {
        name.lower()
        for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    spark_gives = {"checkpointlocation", "queryname"}
    assert (READ | WRITE) - spark_gives <= documented
