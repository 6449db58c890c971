"""`backup` and `restore` through real nodes."""

import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

import octopi
from octopi.cli import restoring
from octopi.identifiers import PartitionId, TopicName
from octopi.record import encode_opaque, request_id_v1
from tests.cli.conftest import Consume, Program, produce

pytestmark = pytest.mark.process

EVERYTHING = rb"%p|%o|%T|%k|%h|%v\0".decode()


def with_client(server: str, use: Callable[[octopi.Client], Awaitable[None]]) -> None:
    async def main() -> None:
        async with octopi.connect(server, request_timeout_s=20) as client:
            await use(client)

    trio.run(main)


def log_start(program: Program, topic: str) -> int:
    """Where the log of *topic*'s only partition starts; 0: its broker does not answer just now."""
    logs = json.loads(program("topics", "describe", topic, "--json").stdout)["logs"]
    return max((int(one["log"]["log_start"]) for one in logs), default=0)


def stored(server: str, topic: str) -> dict[int, bytes]:
    """The bytes of every log of *topic*, without reading them as messages."""
    logs: dict[int, bytes] = {}

    async def read(client: octopi.Client) -> None:
        info = await client.describe_topic(topic)
        name, topic_id = TopicName(info.topic), octopi.identifiers.TopicId(info.topic_id)
        for one in info.partitions:
            partition = PartitionId(one.partition)
            end = await client.stored_records.find(name, partition, "latest")
            async with client.stored_records.read(
                name,
                topic_id,
                partition,
                octopi.position.Place(octopi.identifiers.Offset(0)),
                end.offset,
                window_bytes=1_000_000,
                skip_gaps=False,
            ) as reader:
                logs[partition] = b""
                while chunks := await reader.chunks():
                    logs[partition] += b"".join(chunk.records for chunk in chunks)

    with_client(server, read)
    return logs


def test_a_restored_topic_has_the_same_records_at_the_same_offsets(
    program: Program, consume: Consume, server: str, tmp_path: Path, topic: str
) -> None:
    """Records of producers with and without names, of two lives, and of version 1."""
    created = ("--on", "5,2", "--segment-size", "8192", "--retention", "999999999999ms")
    assert program("topics", "create", topic, *created).exit_code == 0

    async def fill(client: octopi.Client) -> None:
        name, partition = TopicName(topic), PartitionId(2)
        async with client.producer() as some, client.producer() as others:
            for life in range(2):
                async with client.producer(name=f"{topic}-named") as named:
                    for number in range(3):
                        value = b"%d in life %d" % (number, life)
                        await named.send(topic, value, partition=2)
                        await some.send(topic, b"", key=b"k", headers={"h": b"\xff"}, partition=2)
                        await others.send(topic, b"x" * 3000, partition=2)
                old = b"".join(
                    encode_opaque(request_id_v1("host", life, number), b"version 1")
                    for number in range(2)
                )
                await client.stored_records.append(name, partition, old)
            await some.send(topic, b"five", partition=5)

    with_client(server, fill)
    directory = tmp_path / "backup"
    backed_up = program("backup", topic, str(directory))
    assert backed_up.exit_code == 0, backed_up.stderr
    assert backed_up.stdout == ""
    assert backed_up.stderr.startswith(f"backed up {topic} to {directory}: 2 logs, 23 messages, ")
    assert sorted(os.listdir(directory)) == ["2.log", "5.log", "backup.json"]

    before, printed = stored(server, topic), consume(topic, "-e", "-p", "2", "-f", EVERYTHING)
    assert program("topics", "delete", topic, "--yes").exit_code == 0
    restored = program("restore", str(directory))
    assert restored.exit_code == 0, restored.stderr
    assert restored.stderr.startswith(f"restored {topic} with its offsets: 2 logs, 23 messages, ")
    assert stored(server, topic) == before
    assert consume(topic, "-e", "-p", "2", "-f", EVERYTHING) == printed
    described = program("topics", "describe", topic).stdout
    assert "retention_ms 999999999999, segment_bytes 8192" in described

    produce(program, tmp_path, topic, b"and on\n", "-p", "2")
    assert consume(topic, "-e", "-p", "2", "-o", str(len(before[2]))) == b"and on\n"


def test_a_topic_that_is_not_empty_is_not_restored_to(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    directory = str(tmp_path / "backup")
    assert program("backup", topic, directory).exit_code == 0
    refused = program("restore", directory)
    assert refused.exit_code == 2
    assert f"{topic} is not empty: {topic}/" in refused.stderr
    assert consume(topic, "-e") == b"a\n"

    assert program("topics", "create", f"{topic}-empty").exit_code == 0
    assert program("restore", directory, "--topic", f"{topic}-empty").exit_code == 0
    assert consume(f"{topic}-empty", "-e") == b"a\n"
    assert program("topics", "create", f"{topic}-wide", "--partitions", "2").exit_code == 0
    refused = program("restore", directory, "--topic", f"{topic}-wide")
    assert refused.exit_code == 2
    assert "has 2 partitions, and the backup 1" in refused.stderr


def test_a_log_that_another_program_wrote_to_meanwhile_is_noticed(
    program: Program, tmp_path: Path, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert program("produce", topic, "a", "b").exit_code == 0
    directory = str(tmp_path / "backup")
    assert program("backup", topic, directory).exit_code == 0

    async def is_empty(*_: object) -> None:
        """It was, when that was asked."""

    monkeypatch.setattr(restoring, "_check_empty", is_empty)
    assert program("produce", f"{topic}-again", "of another program").exit_code == 0
    failed = program("restore", directory, "--topic", f"{topic}-again")
    assert failed.exit_code == 1
    assert f"{topic}-again/" in failed.stderr
    assert "is not as in the backup: it ends at offset " in failed.stderr


def test_a_damaged_backup_is_refused_before_anything_is_made(
    program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "first", "second").exit_code == 0
    directory = tmp_path / "backup"
    assert program("backup", topic, str(directory)).exit_code == 0
    [log] = directory.glob("*.log")
    log.write_bytes(log.read_bytes()[:-1])
    refused = program("restore", str(directory), "--topic", f"{topic}-again")
    assert refused.exit_code == 5
    assert "its last record is cut; sound are the first 62 of 125 bytes, 1 of 2" in refused.stderr
    assert f"{topic}-again" not in program("topics", "list").stdout


def test_a_topic_without_its_beginning_is_restored_with_new_offsets_only(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    small = ("--segment-size", "4096", "--retention-size", "4096")
    assert program("topics", "create", topic, *small).exit_code == 0
    lines = b"".join(b"%04d %s\n" % (number, b"x" * 1000) for number in range(40))
    produce(program, tmp_path, topic, lines, "-k", "key", "-H", "n=1", "--linger", "0")
    while log_start(program, topic) == 0:  # a broker looks once a minute
        produce(program, tmp_path, topic, b"x" * 5000)
        time.sleep(1)
    assert program("topics", "alter", topic, "--retention-size", "1GB").exit_code == 0
    directory = str(tmp_path / "backup")
    backed_up = program("backup", topic, directory)
    assert backed_up.exit_code == 0
    assert "begins at offset" in backed_up.stderr
    assert "--new-offsets" in backed_up.stderr
    kept = consume(topic, "-e", "-f", r"%k|%h|%T|%v\n")

    other = f"{topic}-again"
    refused = program("restore", directory, "--topic", other)
    assert refused.exit_code == 2
    assert "so its offsets can't be kept: with --new-offsets" in refused.stderr
    restored = program("restore", directory, "--topic", other, "--new-offsets", "--no-retention")
    assert restored.exit_code == 0, restored.stderr
    assert restored.stderr.startswith(f"restored {other} with new offsets: 1 log, ")
    assert consume(other, "-e", "-f", r"%k|%h|%T|%v\n") == kept
    assert consume(other, "-e", "-n", "1", "-f", "%o") == b"0"
    assert "retention_bytes" not in program("topics", "describe", other).stdout


def test_a_backup_is_made_in_an_empty_directory_only(
    program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "a").exit_code == 0
    directory = tmp_path / "backup"
    assert program("backup", f"{topic}-other", str(directory)).exit_code == 4
    assert not directory.exists()
    directory.mkdir()
    (directory / "7777.log").write_bytes(b"of another program")
    refused = program("backup", topic, str(directory))
    assert refused.exit_code == 2
    assert "is not empty (7777.log)" in refused.stderr
    assert (directory / "7777.log").read_bytes() == b"of another program"

    (directory / "unfinished").touch()  # so it was a backup that was interrupted
    assert program("restore", str(directory)).exit_code == 2
    assert program("backup", topic, str(directory)).exit_code == 0
    assert not (directory / "7777.log").exists()
    assert not (directory / "unfinished").exists()
    again = program("backup", topic, str(directory))
    assert again.exit_code == 2
    assert "has a backup already" in again.stderr
    (tmp_path / "mine").write_text("mine")
    full = program("backup", topic, str(tmp_path))
    assert full.exit_code == 2
    assert "is not empty (backup)" in full.stderr


def test_partitions_that_the_cluster_does_not_have_become_others(
    program: Program, consume: Consume, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "a", "b").exit_code == 0
    directory = tmp_path / "backup"
    assert program("backup", topic, str(directory)).exit_code == 0
    [log] = directory.glob("*.log")
    number = log.stem
    manifest = directory / "backup.json"
    manifest.write_text(manifest.read_text().replace(f'"partition": {number}', '"partition": 4444'))
    log.rename(directory / "4444.log")
    restored = program("restore", str(directory), "--topic", f"{topic}-again")
    assert restored.exit_code == 0, restored.stderr
    assert "note: what was in partition 4444 is in partition " in restored.stderr
    assert consume(f"{topic}-again", "-e") == b"a\nb\n"
