"""What the document about Spark shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from octopi.spark.options import READ, WRITE
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]

TEXT = (Path(__file__).parents[2] / "docs/spark.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def test_the_programs_run(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, stream, files = blocks("python")

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
    cluster.broker.terminate()
    try:
        shown = run(files)
    finally:
        cluster.broker.restart()
    assert re.search(r"\|large-orders\| +\d+\| +2\|", shown)


def test_every_option_is_documented() -> None:
    documented = {
        name.lower()
        for row in re.findall(r"^\| (`.*?) \|", TEXT, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    spark_gives = {"checkpointlocation", "queryname"}
    assert (READ | WRITE) - spark_gives <= documented
