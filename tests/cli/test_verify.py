"""Checking data directories offline: what is found, and what scripts get to know."""

import json
from pathlib import Path

import pytest

from octopi.operating_system import SystemDisk
from tests.asking import batch, produce
from tests.cli.conftest import Program
from tests.cluster import Cluster, describe, running_cluster

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


async def test_sound_directories_are_sound(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    broker = program("verify", str(tmp_path / "broker-1"))
    assert (broker.exit_code, broker.stderr) == (0, "")
    assert broker.stdout.startswith("checked 1 log, ")
    assert broker.stdout.endswith(": no damage\n")
    assert program("verify", str(tmp_path / "register")).exit_code == 0
    log = segment_of(tmp_path / "broker-1").parent
    assert program("verify", str(log)).stdout == broker.stdout


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


def test_a_directory_of_something_else_is_wrong_use(program: Program, tmp_path: Path) -> None:
    result = program("verify", str(tmp_path))
    assert result.exit_code == 2
    assert "is no data directory" in result.stderr


def test_a_directory_that_is_not_there_is_wrong_use(program: Program, tmp_path: Path) -> None:
    assert program("verify", str(tmp_path / "nowhere")).exit_code == 2
