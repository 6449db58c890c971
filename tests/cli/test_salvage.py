"""Bytes that were taken out of logs: named, printed, and put back."""

import json
from pathlib import Path

from octopi.operating_system import SystemDisk
from tests.cli.conftest import Program
from tests.cli.test_verify import fill, segment_of
from tests.kit.cluster import describe, running_cluster
from tests.kit.probes import batch, fetch, values


async def test_bytes_that_were_set_aside_are_named_and_their_sound_messages_printed(
    program: Program, tmp_path: Path
) -> None:
    await fill(tmp_path)
    broker = tmp_path / "broker-1"
    log = segment_of(broker).parent
    one = batch(3, b"fourth")
    damaged = bytearray(one + batch(4, b"fifth") + batch(5, b"sixth"))
    damaged[len(one) + 60] ^= 1
    cut = log / f"{5000:020d}.cut"
    cut.write_bytes(damaged)
    kept = log.parent / "other!1.damaged"
    kept.mkdir()
    (kept / f"{0:020d}.log").write_bytes(batch(0, b"elsewhere"))
    listed = program("salvage", str(broker))
    assert listed.exit_code == 0
    assert f"{cut}: orders/{log.parent.name} from offset 5000" in listed.stdout
    assert "2 messages, 1 damaged place" in listed.stdout
    assert "2 files kept" in listed.stdout
    assert "--put-back is possible" not in listed.stdout
    printed = program("salvage", str(broker), "--print", str(cut))
    assert printed.stdout == "fourth\nsixth\n"
    in_json = program("salvage", str(broker), "--print", str(kept / f"{0:020d}.log"), "--json")
    assert json.loads(in_json.stdout)["value"] == "elsewhere"
    found = json.loads(program("salvage", str(broker), "--json").stdout)
    assert [row["messages"] for row in found] == [2, 1]
    refused = program("salvage", str(broker), "--put-back", str(cut))
    assert refused.exit_code == 1
    assert "can't be put back" in refused.stderr
    assert program("salvage", str(broker), "--print", "elsewhere").exit_code == 2


async def test_messages_that_fit_behind_the_end_of_a_sole_replicas_log_are_put_back(
    program: Program, tmp_path: Path
) -> None:
    await fill(tmp_path)
    broker = tmp_path / "broker-1"
    segment = segment_of(broker)
    end = segment.stat().st_size
    cut = segment.parent / f"{end:020d}.cut"
    cut.write_bytes(batch(3, b"fourth"))
    assert "--put-back is possible" in program("salvage", str(broker)).stdout
    dry = program("salvage", str(broker), "--put-back", str(cut), "--dry-run")
    assert dry.stdout == f"would put back 1 message from offset {end} on\n"
    assert cut.exists()
    done = program("salvage", str(broker), "--put-back", str(cut))
    assert (done.exit_code, done.stdout) == (0, f"put back 1 message from offset {end} on\n")
    assert not cut.exists()
    assert program("verify", str(broker)).exit_code == 0
    async with running_cluster(tmp_path, brokers=0) as cluster:
        node = await cluster.start_broker()
        topic = await describe(cluster, "orders")
        async with cluster.connection(node.url) as connection:
            assert values((await fetch(connection, topic, end)).records) == [b"fourth"]


async def test_the_messages_of_a_whole_log_are_printed_by_its_folder(
    program: Program, tmp_path: Path
) -> None:
    await fill(tmp_path)
    broker = tmp_path / "broker-1"
    log = segment_of(broker).parent
    printed = program("salvage", str(broker), "--print", str(log))
    assert printed.exit_code == 0, printed.stderr
    assert printed.stdout.splitlines() == ["first", "second", "third"]
    assert program("salvage", str(broker), "--put-back", str(log)).exit_code == 2
    assert program("salvage", str(broker), "--print", str(log.parent)).exit_code == 2
    assert program("salvage", str(broker), "--print", str(log / "elsewhere")).exit_code == 2


async def test_a_directory_in_use_is_not_salvaged(program: Program, tmp_path: Path) -> None:
    await fill(tmp_path)
    lock = SystemDisk().lock_directory(str(tmp_path / "broker-1"))
    try:
        assert program("salvage", str(tmp_path / "broker-1")).exit_code == 1
    finally:
        lock.release()
