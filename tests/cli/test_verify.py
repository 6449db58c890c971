"""Checking data directories offline: what is found, and what scripts get to know."""

import json
import shutil
from pathlib import Path

import pytest
import trio

import octopi
from octopi.identifiers import is_internal
from octopi.operating_system import SystemDisk
from octopi.storage import checkpoint
from octopi.storage.ends_file import load_ends
from tests.cli.conftest import Program
from tests.kit.cluster import Cluster, describe, running_cluster
from tests.kit.probes import batch, produce

VALUES = [b"first", b"second", b"third"]


async def fill(directory: Path) -> None:
    """A stopped cluster whose broker holds three messages, a batch each."""
    async with running_cluster(directory, brokers=0) as cluster:
        broker = await cluster.start_broker()
        await write(cluster)
        await cluster.stop(broker)
        await cluster.stop(cluster.register)


async def write(cluster: Cluster) -> None:
    topic = await describe(cluster, "orders")
    async with cluster.connection(topic.partitions[0].leader_address) as broker:
        for number, value in enumerate(VALUES):
            await produce(broker, topic, batch(number, value))


def segment_of(broker: Path) -> Path:
    (segment,) = broker.glob("logs/*/orders/*.log")
    return segment


async def test_sound_directories_have_no_damage(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    broker = program("verify", str(tmp_path / "broker-1"))
    assert (broker.exit_code, broker.stderr) == (0, "")
    assert broker.stdout.startswith("checked 2 logs, "), "the internal one is among them"
    assert broker.stdout.endswith(": no damage\n")
    assert program("verify", str(tmp_path / "register")).exit_code == 0
    log = segment_of(tmp_path / "broker-1").parent
    one = program("verify", str(log))
    assert one.stdout.startswith("checked 1 log, ")
    assert one.stdout.endswith(": no damage\n")


async def test_the_logs_of_a_topic_on_two_partitions_may_end_at_different_places(
    program: Program, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path, brokers=0) as cluster:
        broker = await cluster.start_broker()
        async with octopi.connect(cluster.register.url) as client, client.producer() as producer:
            for topic, longer in (("orders", 2), ("returns", 3)):
                await client.create_topic(topic, partition_ids=[2, 3])
                await producer.send(topic, b"first", partition=2)
                await producer.send(topic, b"second", partition=3)
                await producer.send(topic, b"third", partition=longer)
        await cluster.stop(broker)
    result = program("verify", str(tmp_path / "broker-1"))
    assert result.exit_code == 0, result.stdout
    assert result.stdout.startswith("checked 6 logs, "), "two of them are internal"


async def test_verifying_changes_nothing(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)

    def content() -> dict[str, bytes]:
        files = (tmp_path / "broker-1").rglob("*")
        return {str(path): path.read_bytes() for path in files if path.is_file()}

    before = content()
    program("verify", str(tmp_path / "broker-1"))
    assert content() == before


async def test_damage_is_named_by_file_byte_and_offset(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    segment = segment_of(tmp_path / "broker-1")
    data = bytearray(segment.read_bytes())
    second = data.index(b"second")
    starts_at = len(batch(0, b"first"))
    data[second] ^= 1
    segment.write_bytes(data)
    result = program("verify", str(tmp_path / "broker-1"))
    assert result.exit_code == 5
    finding, summary = result.stdout.splitlines()
    assert finding.startswith(f"damage: {segment}: byte {starts_at}, offset {starts_at}: ")
    assert summary.endswith(": 1 damaged place")
    found = json.loads(program("verify", str(tmp_path / "broker-1"), "--json").stdout)
    assert found["damages"] == 1
    assert found["findings"][0]["path"] == str(segment)
    assert found["findings"][0]["offset"] == starts_at


async def test_a_torn_tail_is_harmless_and_reported(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    segment = segment_of(tmp_path / "broker-1")
    with segment.open("ab") as file:
        file.write(batch(3, b"never finished")[:30])
    result = program("verify", str(tmp_path / "broker-1"))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"torn tail: {segment}: byte ")


async def killed_with(directory: Path) -> tuple[Path, int]:
    """A broker's directory after the process ended at once, with three messages that it noted as
    flushed; and where the second of them is in the segment."""
    async with running_cluster(directory, brokers=0) as cluster:
        broker = await cluster.start_broker()
        await write(cluster)
        path = next((directory / "broker-1").glob("replicas/*.ends"))
        end = segment_of(directory / "broker-1").stat().st_size
        with trio.fail_after(20):
            while flushed_end(path) < end:  # noqa: ASYNC110
                await trio.sleep(0.02)  # nothing announces it
        await cluster.kill(broker)
    return directory / "broker-1", len(batch(0, b"first"))


def flushed_end(path: Path) -> int:
    stored = load_ends(SystemDisk(), str(path))
    assert stored is not None
    topics = (one for topic_id, one in stored.logs.items() if not is_internal(topic_id))
    return min(one.recovery_point for one in topics)


async def test_a_bit_that_flipped_below_what_was_flushed_is_damage_and_no_torn_tail(
    program: Program, tmp_path: Path
) -> None:
    broker, second = await killed_with(tmp_path)
    segment = segment_of(broker)
    data = bytearray(segment.read_bytes())
    data[second + 40] ^= 1
    segment.write_bytes(data)
    for directory in (broker, segment.parent):
        result = program("verify", str(directory))
        assert result.exit_code == 5
        assert result.stdout.startswith(f"damage: {segment}: byte {second}, offset {second}: ")


async def test_a_log_that_is_gone_or_lost_its_first_segment_is_damage(
    program: Program, tmp_path: Path
) -> None:
    broker, _ = await killed_with(tmp_path)
    log = segment_of(broker).parent
    segment_of(broker).rename(log / f"{500:020d}.log")
    result = program("verify", str(broker))
    assert result.exit_code == 5
    assert "from offset 0 to 500 are missing" in result.stdout
    shutil.rmtree(log)
    result = program("verify", str(broker))
    assert result.exit_code == 5
    assert f"damage: {log}: byte 0, offset 0: the log is missing" in result.stdout


async def test_a_file_of_ends_that_is_damaged_is_damage(program: Program, tmp_path: Path) -> None:
    broker, _ = await killed_with(tmp_path)
    (ends,) = broker.glob("replicas/*.ends")
    data = bytearray(ends.read_bytes())
    data[30] ^= 1
    ends.write_bytes(data)
    result = program("verify", str(broker))
    assert result.exit_code == 5
    assert f"damage: {ends}" in result.stdout


async def test_bytes_that_were_set_aside_are_named_and_do_no_harm(
    program: Program, tmp_path: Path
) -> None:
    await fill(tmp_path)
    log = segment_of(tmp_path / "broker-1").parent
    (log / f"{500:020d}.cut").write_bytes(b"kept")
    (log.parent / "other!1.damaged").mkdir()
    result = program("verify", str(tmp_path / "broker-1"))
    assert result.exit_code == 0
    for name in (log.parent / "other!1.damaged", log / f"{500:020d}.cut"):
        assert f"set aside: {name}" in result.stdout


async def test_a_damaged_small_file_is_damage(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    identity = tmp_path / "broker-1" / "identity"
    identity.write_bytes(identity.read_bytes()[:-1])
    result = program("verify", str(tmp_path / "broker-1"))
    assert result.exit_code == 5
    assert f"damage: {identity}" in result.stdout


async def test_a_damaged_journal_is_damage(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    (journal,) = (tmp_path / "register").glob("journal/*/*.log")
    data = bytearray(journal.read_bytes())
    data[50] ^= 1
    journal.write_bytes(data)
    result = program("verify", str(tmp_path / "register"))
    assert result.exit_code == 5
    assert str(journal) in result.stdout


@pytest.mark.parametrize("inside", ["", "logs", "log"])
async def test_a_directory_in_use_is_refused(program: Program, tmp_path: Path, inside: str) -> None:
    await fill(tmp_path)
    broker = tmp_path / "broker-1"
    lock = SystemDisk().lock_directory(str(broker))
    try:
        directory = segment_of(broker).parent if inside == "log" else broker / inside
        result = program("verify", str(directory))
    finally:
        lock.release()
    assert result.exit_code == 1
    assert f"a node is using {broker}: stop it first" in result.stderr


def test_a_directory_of_something_else_is_a_usage_error(program: Program, tmp_path: Path) -> None:
    result = program("verify", str(tmp_path))
    assert result.exit_code == 2
    assert "is not a data directory" in result.stderr


def test_a_missing_directory_is_a_usage_error(program: Program, tmp_path: Path) -> None:
    assert program("verify", str(tmp_path / "nowhere")).exit_code == 2


async def test_an_older_copy_of_a_checkpoint_is_damage(program: Program, tmp_path: Path) -> None:
    broker, _ = await killed_with(tmp_path)
    path = str(segment_of(broker).parent / "checkpoint")
    newest = checkpoint.load(SystemDisk(), path)
    assert newest is not None
    older = newest["number"] - 1
    await checkpoint.store(SystemDisk(), path, {**newest, "number": older})
    result = program("verify", str(broker))
    assert result.exit_code == 5
    assert result.stdout.startswith(f"damage: {path}: ")
    assert f"an older copy: number {older}, the newest was {newest['number']}\n" in result.stdout
