"""The jobs, from one end to the other: archive, replay, rates, audit, simulate."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from harness.processes import node_processes
from harness.spark_cluster import Cluster, by_partition, flights
from octopi.cli.main import cli
from octopi.errors import InvalidOptionError, StorageError
from octopi.operating_system import SystemDisk
from octopi.record import encode_opaque, record_end
from octopi.spark.jobs.archive import ArchiveOptions, archive
from octopi.spark.jobs.archive_files import ArchivedLog, archived_logs, compact
from octopi.spark.jobs.audit import AuditFault, audit
from octopi.spark.jobs.rates import RatesOptions, chart_page, rates
from octopi.spark.jobs.replay import ReplayOptions, replay
from octopi.spark.jobs.simulate import CampaignOptions, simulate
from octopi.spark.stored_logs import find_folders
from sim.search.spark_seeds import run_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.process, pytest.mark.filterwarnings("default::ResourceWarning")]

COUNT = 6_000


def archived(directory: Path) -> dict[str, list[str]]:
    """The names of the files of each log."""
    return {
        f"{log.topic}/{log.partition}": [one.path.name for one in log.stretches()]
        for log in archived_logs(directory)
    }


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    name = cluster.topic(3, name="departures")
    cluster.fill(name, flights(COUNT), key=lambda value: value.split(b",")[10])  # the carrier
    return name


@pytest.fixture(scope="module")
def archive_directory(
    spark: SparkSession, cluster: Cluster, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    directory = tmp_path_factory.mktemp("archive")
    source = {"server": cluster.url, "subscribe": topic}
    options = ArchiveOptions(directory, source, batch_bytes=400_000, file_bytes=0)
    done = archive(spark, options)
    assert (done.rows, done.gaps) == (COUNT, 0)
    assert done.batches > 1
    return directory


# --- archive -----------------------------------------------------------------------------


def test_an_archive_is_plain_parquet(
    spark: SparkSession, cluster: Cluster, topic: str, archive_directory: Path
) -> None:
    rows = spark.read.parquet(str(archive_directory)).orderBy("partition", "offset").collect()
    messages = cluster.messages(topic)
    assert by_partition(rows) == by_partition(messages)
    found = {(row.partition, row.offset, bytes(row.key), bytes(row.request_id)) for row in rows}
    assert found == {(one.partition, one.offset, one.key, one.request_id) for one in messages}


def test_later_messages_are_added_and_small_files_merged(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    name = cluster.topic()
    source = {"server": cluster.url, "subscribe": name}
    for first in range(0, 90, 30):
        cluster.fill(name, [b"%03d" % n for n in range(first, first + 30)])
        archive(spark, ArchiveOptions(tmp_path, source, file_bytes=0))
    (files,) = archived(tmp_path).values()
    assert len(files) == 3
    done = archive(spark, ArchiveOptions(tmp_path, source))
    assert (done.rows, done.merged_files, done.gaps) == (0, 2, 0)
    (files,) = archived(tmp_path).values()
    assert len(files) == 1
    rows = spark.read.parquet(str(tmp_path)).orderBy("offset").collect()
    assert [int(row.value) for row in rows] == list(range(90))
    # Without its checkpoint it goes on behind what is there.
    shutil.rmtree(tmp_path / "_checkpoint")
    cluster.fill(name, [b"090"])
    assert archive(spark, ArchiveOptions(tmp_path, source, file_bytes=0)).rows == 1


def test_a_killed_merge_is_finished_by_the_next_one(
    archive_directory: Path, tmp_path: Path
) -> None:
    import pyarrow.parquet as pq

    source = archived_logs(archive_directory)[0]
    directory = tmp_path / "topic=t" / "partition=0"
    shutil.copytree(source.directory, directory)
    log = ArchivedLog(source.topic, source.partition, directory)
    parts = log.stretches()
    expected = [row for part in parts for row in pq.read_table(part.path).to_pylist()]
    backup = tmp_path / "backup"
    shutil.copytree(directory, backup)
    assert compact(log, 2**40) == len(parts) - 1
    (whole,) = log.stretches()
    # As it is when the process dies before, between and after removing parts.
    for removed in range(len(parts) + 1):
        shutil.copytree(backup, directory, dirs_exist_ok=True)
        merged = directory / f".{whole.path.stem}.merged"
        whole.path.rename(merged)
        for part in parts[:removed]:
            part.path.unlink()
        compact(log, 2**40)
        (whole,) = log.stretches()
        assert pq.read_table(whole.path).to_pylist() == expected
    (directory / f"{0:020d}-{1:020d}.parquet").touch()
    with pytest.raises(StorageError, match="overlap"):
        log.stretches()


# --- replay ------------------------------------------------------------------------------


def test_a_replay_gives_the_same_messages_in_the_same_order_once(
    spark: SparkSession, cluster: Cluster, topic: str, archive_directory: Path
) -> None:
    target = f"{topic}-again"
    options = ReplayOptions(archive_directory, target, {"server": cluster.url})
    for _ in range(2):  # done again, it adds nothing
        assert replay(spark, options).rows == COUNT
    there, here = (by_partition(cluster.messages(one)).values() for one in (target, topic))
    assert sorted(there) == sorted(here)
    stamps = [{one.value: one.timestamp_ms for one in cluster.messages(t)} for t in (target, topic)]
    assert stamps[0] == stamps[1]


def test_a_paced_replay_needs_a_task_slot_for_each_log(
    spark: SparkSession, cluster: Cluster, archive_directory: Path
) -> None:
    options = ReplayOptions(archive_directory, "paced", {"server": cluster.url}, speed=1000.0)
    with pytest.raises(InvalidOptionError, match=r"local\[3\]"):
        replay(spark, options)
    with pytest.raises(InvalidOptionError, match="no archive"):
        replay(
            spark,
            ReplayOptions(archive_directory, "paced", {"server": cluster.url}, only=("nosuch",)),
        )


def test_a_replay_keeps_its_pace(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> None:
    name = cluster.topic()
    cluster.fill(name, [b"%d" % n for n in range(50)], key=lambda _: None)
    archive(spark, ArchiveOptions(tmp_path, {"server": cluster.url, "subscribe": name}))
    assert (
        replay(spark, ReplayOptions(tmp_path, "live", {"server": cluster.url}, speed=1.0)).rows
        == 50
    )
    assert [int(one.value) for one in cluster.messages("live")] == list(range(50))


# --- rates -------------------------------------------------------------------------------


def test_the_rates_job_counts_the_messages_of_an_archive(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    source = {"server": cluster.url, "subscribe": topic}
    found = rates(spark, RatesOptions(source, window="1 hour", by_key=True))
    messages = cluster.messages(topic)
    assert sum(one.count for one in found) == COUNT
    assert sum(one.size_bytes for one in found) == sum(len(one.value) for one in messages)
    assert {one.key for one in found} == {(one.key or b"").decode() for one in messages}
    page = chart_page(found, {f"{topic}/0": 12})
    assert page.count("<svg") == 2
    assert f"<td>{topic}/0</td><td>12</td>" in page
    assert (
        json.loads(page.split("application/json'>")[1].split("</script>")[0])[0]["topic"] == topic
    )


# --- audit -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The data directories of three brokers that were stopped."""
    with node_processes(tmp_path_factory.mktemp("replicas")) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)]
        cluster = Cluster(register, brokers[0])
        name = cluster.topic(name="audited", segment_bytes=200_000)
        for first in range(0, 4000, 500):
            cluster.fill(name, [b"%0100d" % n for n in range(first, first + 500)])
        for broker in brokers:
            broker.terminate()
        yield [broker.data_dir for broker in brokers]


@pytest.fixture
def directories(healthy: list[Path], tmp_path: Path) -> list[Path]:
    """Copies of them, to be harmed."""
    return [Path(shutil.copytree(one, tmp_path / one.name)) for one in healthy]


def segments(directory: Path) -> list[Path]:
    return sorted((directory / "logs").glob("*/audited/*.log"))


def faults(spark: SparkSession, directories: list[Path]) -> list[AuditFault]:
    return audit(spark, directories).faults


def test_healthy_replicas_pass_the_audit(spark: SparkSession, healthy: list[Path]) -> None:
    done = audit(spark, healthy)
    assert done.faults == []
    assert (done.logs, done.replicas) == (1, 3)
    assert done.size_bytes == sum(path.stat().st_size for one in healthy for path in segments(one))
    assert len(segments(healthy[0])) > 2


def test_a_flipped_bit_in_a_replica_is_named(spark: SparkSession, directories: list[Path]) -> None:
    path = segments(directories[1])[1]
    data = bytearray(path.read_bytes())
    start = record_end(path.read_bytes(), record_end(path.read_bytes(), 0))
    data[start + 70] ^= 4
    path.write_bytes(data)
    offset = int(path.stem) + start
    found = faults(spark, directories)
    assert {(one.kind, one.path) for one in found} == {
        ("damage", str(path)),
        ("difference", str(path)),
    }
    assert {one.offset for one in found} == {offset, offset + 70}


def test_a_truncated_replica_is_named(spark: SparkSession, directories: list[Path]) -> None:
    path = segments(directories[2])[-1]
    size = record_end(path.read_bytes(), 0)
    with path.open("r+b") as file:
        file.truncate(size)
    (found,) = faults(spark, directories)
    assert (found.kind, found.path, found.offset) == ("short", str(path), int(path.stem) + size)


def test_a_replica_that_lost_its_files_is_named(
    spark: SparkSession, directories: list[Path]
) -> None:
    lost = segments(directories[2])
    for path in lost:
        path.unlink()
    (found,) = faults(spark, directories)
    assert (found.kind, found.path, found.offset) == ("short", str(lost[0].parent), 0)


def test_a_replica_whose_log_is_gone_altogether_is_named(
    spark: SparkSession, directories: list[Path]
) -> None:
    (log,) = (directories[2] / "logs").glob("*/audited")
    shutil.rmtree(log)
    (found,) = faults(spark, directories)
    assert (found.kind, found.path, found.offset) == ("short", str(log), 0)


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """The data directories of three brokers that were killed seconds after they had all."""
    with node_processes(tmp_path_factory.mktemp("killed")) as nodes:
        register = nodes.register()
        brokers = [nodes.broker(register, f"broker-{n}") for n in (1, 2, 3)]
        cluster = Cluster(register, brokers[0])
        name = cluster.topic(name="audited", segment_bytes=200_000)
        cluster.fill(name, [b"%0100d" % n for n in range(4000)])
        for broker in brokers:
            wait_until_noted(broker.data_dir)
        for broker in brokers:
            broker.kill9()
        yield [broker.data_dir for broker in brokers]


def wait_until_noted(directory: Path) -> None:
    """Wait until all of the log is known to be committed."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        (folder,) = find_folders(SystemDisk(), str(directory))
        if folder.highwater == int(segments(directory)[-1].stem) + (
            segments(directory)[-1].stat().st_size
        ):
            return
        time.sleep(0.05)  # nothing announces it
    raise AssertionError(f"the highwater mark is {folder.highwater}")


def test_the_replicas_of_killed_brokers_are_audited(
    spark: SparkSession, killed: list[Path], tmp_path: Path
) -> None:
    done = audit(spark, killed)
    assert (done.replicas, done.faults, done.not_judged) == (3, [], [])
    assert done.size_bytes == sum(path.stat().st_size for one in killed for path in segments(one))
    altered = Path(shutil.copytree(killed[0], tmp_path / "altered"))
    data = bytearray(segments(altered)[0].read_bytes())
    data[500] ^= 1
    segments(altered)[0].write_bytes(data)
    assert {one.path for one in faults(spark, [altered, *killed[1:]])} == {
        str(segments(altered)[0])
    }


def test_records_not_known_to_be_committed_are_reported_as_not_audited(
    spark: SparkSession, killed: list[Path], tmp_path: Path
) -> None:
    copies = [Path(shutil.copytree(one, tmp_path / one.name)) for one in killed]
    ends = [segments(one)[-1] for one in copies]
    end = int(ends[0].stem) + ends[0].stat().st_size
    tail = segments(copies[0])[0].read_bytes()[: record_end(segments(copies[0])[0].read_bytes(), 0)]
    with ends[1].open("ab") as file:
        file.write(tail)
    done = audit(spark, copies)
    assert done.faults == []
    (rest,) = done.not_judged
    assert (rest.offset, rest.size_bytes) == (end, len(tail))
    assert rest.directory == str(ends[1].parent)


def test_an_audit_without_any_comparable_records_fails(
    spark: SparkSession, killed: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def job(*_: object) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("octopi.cli.commands.pipeline.audit.spark_job", job)
    copies = [Path(shutil.copytree(one, tmp_path / one.name)) for one in killed]
    for one in copies:
        for ends in (one / "replicas").glob("*.ends"):
            ends.unlink()
    done = audit(spark, copies)
    assert done.size_bytes == 0
    assert len(done.not_judged) == 3
    result = CliRunner().invoke(cli, ["pipeline", "audit", *map(str, copies)])
    assert result.exit_code == 1
    assert "nothing was judged" in result.stderr


def test_files_of_a_killed_broker_are_read_up_to_its_highwater_mark(
    spark: SparkSession, killed: list[Path], tmp_path: Path
) -> None:
    def rows(directory: Path) -> int:
        read = spark.read.format("octopi").option("path", str(directory))
        return read.option("subscribe", "audited").load().count()

    assert rows(killed[0]) == 4000
    bare = Path(shutil.copytree(killed[0], tmp_path / "bare"))
    for ends in (bare / "replicas").glob("*.ends"):
        ends.unlink()
    with pytest.raises(Exception, match="nothing is known to be committed"):
        rows(bare)


def test_a_swapped_segment_is_named(spark: SparkSession, directories: list[Path]) -> None:
    one, other = segments(directories[0])[:2]
    one_data, other_data = one.read_bytes(), other.read_bytes()
    one.write_bytes(other_data)
    other.write_bytes(one_data)
    found = faults(spark, directories)
    assert {fault.path for fault in found} <= {str(one), str(other)}
    assert "difference" in {fault.kind for fault in found}
    assert min(fault.offset for fault in found if fault.kind == "difference") < int(other.stem)


def test_a_duplicated_record_is_named_even_if_every_replica_has_it(
    spark: SparkSession, directories: list[Path]
) -> None:
    named = set()
    for directory in directories:
        first, last = segments(directory)[0], segments(directory)[-1]
        data = last.read_bytes()
        end = record_end(data, 0)
        copied = first.read_bytes()[: record_end(first.read_bytes(), 0)]
        assert len(copied) == end
        last.write_bytes(copied + data[end:])  # in the place of another one
        named.add(str(last))
    (found,) = faults(spark, directories)
    assert found.kind == "duplicate"
    assert found.path in named
    assert found.offset == int(Path(found.path).stem)
    assert "at offset 0" in found.what


def test_a_record_of_another_version_is_audited_too(
    spark: SparkSession, directories: list[Path]
) -> None:
    for directory in directories:
        path = segments(directory)[0]
        data = path.read_bytes()
        sizes = record_end(data, 0), record_end(data, record_end(data, 0)) - record_end(data, 0)
        old = b"".join(encode_opaque(b"r" * 32, bytes(size - 41)) for size in sizes)
        path.write_bytes(old + data[len(old) :])
    (found,) = faults(spark, directories)
    assert (found.kind, found.offset) == ("duplicate", sizes[0])


# --- simulate ----------------------------------------------------------------------------


def plant_a_mutant() -> None:
    import sys

    from sim.mutants.catalogue import MUTANTS
    from sim.mutants.mutant import plant

    mutant = MUTANTS["commit-on-leader-alone"]
    if mutant.module not in sys.modules:
        plant(mutant)


def test_a_simulation_campaign_reports_its_failures(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = simulate(spark, CampaignOptions(tmp_path / "sound", count=6), run_seed)
    assert (sound.runs, sound.failures) == (6, [])
    assert spark.read.parquet(str(tmp_path / "sound")).where("digest <> ''").count() == 6
    # Workers of their own, which have not imported the simulator yet.
    monkeypatch.setitem(spark.sparkContext.environment, "OCTOPI_TEST_MUTANT", "1")
    broken = CampaignOptions(tmp_path / "broken", count=20, prepare=plant_a_mutant)
    done = simulate(spark, broken, run_seed)
    assert done.runs == 20
    assert done.failures
    assert all(one.token and one.text for one in done.failures)
