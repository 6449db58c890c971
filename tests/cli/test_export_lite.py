"""`export --format lite`: a directory for each broker, a file for each partition."""

from __future__ import annotations

from pathlib import Path

import pytest

import octopi
from octopi import lite
from octopi.cli.failures import CommandError
from octopi.cli.lite_export import export_lite
from octopi.cli.rate_meter import RateMeter
from octopi.lite.numbers import padded
from tests.cli.conftest import Program
from tests.kit.cluster import running_cluster


async def test_the_files_of_a_partition_are_equal_on_all_brokers(tmp_path: Path) -> None:
    files = tmp_path / "files"
    async with (
        running_cluster(tmp_path, brokers=3) as cluster,
        octopi.connect(cluster.register.url) as client,
        lite.mount_producer(cluster.register.url) as producer,
    ):
        for number in range(30):
            await producer.add_message(number % 2, b"%d" % number)
        assert await export_lite(client, "lite", files, RateMeter(), force=False) == 9
        for partition_id in (0, 1, 2):
            expected = b"".join(padded(b"%d" % one) for one in range(30) if one % 2 == partition_id)
            expected = expected if partition_id < 2 else b""
            for broker in (1, 2, 3):
                path = files / str(broker) / f"{partition_id}.kafka"
                assert path.read_bytes() == expected
        with pytest.raises(CommandError, match="--force"):
            await export_lite(client, "lite", files, RateMeter(), force=False)
        assert await export_lite(client, "lite", files, RateMeter(), force=True) == 9
        await client.create_topic("empty")
        async with client.producer() as other:
            await other.send("empty", b"short")
        with pytest.raises(lite.NotLiteError):
            await export_lite(client, "empty", tmp_path / "none", RateMeter(), force=False)
        assert not [one for one in (tmp_path / "none").rglob("*") if one.is_file()]


@pytest.mark.process
def test_the_command_writes_the_files_and_says_what_it_needs(
    program: Program, tmp_path: Path, topic: str
) -> None:
    assert program("produce", topic, "x" * lite.MESSAGE_BYTES).exit_code == 0
    files = tmp_path / "files"
    exported = program("export", topic, str(files), "--format", "lite")
    assert exported.exit_code == 0
    assert "1 message, 256 B" in exported.stderr
    written = list(files.rglob("0.kafka"))
    assert written
    assert all(one.read_bytes() == b"x" * lite.MESSAGE_BYTES for one in written)
    for wrong in (
        ("export", topic, "--format", "lite"),
        ("export", topic, str(files), "--format", "lite", "-p", "0"),
    ):
        refused = program(*wrong)
        assert refused.exit_code == 2
        assert "--format lite needs a DIR" in refused.stderr
