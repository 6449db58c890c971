"""Replicas that a broker gave up: listed, checked, printed, brought back, and removed."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import Result

import octopi
from tests.cli.conftest import Program
from tests.cli.test_verify import VALUES, write
from tests.kit.cluster import Cluster, eventually, running_cluster


async def in_thread(program: Program, *arguments: str, **settings: object) -> Result:
    """Run the program beside the cluster."""
    return await trio.to_thread.run_sync(partial(program, *arguments, **settings))


async def typed(*arguments: str, given: bytes = b"") -> bytes:
    """What the program prints in a process of its own that is given that."""
    command = [sys.executable, "-m", "octopi_node", *arguments]
    done = await trio.run_process(command, stdin=given, capture_stdout=True)
    return done.stdout


async def move_all(cluster: Cluster) -> Path:
    """Have a second broker, and all that the first one holds move there; return where the first
    one keeps what it gave up."""
    await write(cluster)
    await cluster.start_broker("broker-2")
    async with octopi.connect(cluster.register.url) as client:
        (topic,) = await client.topics()
        (place,) = topic.partitions
        await client.admin.move_replica(place.partition, 1, 2, timeout_s=20)
    root = cluster.directory / "broker-1" / "retired"
    await eventually(lambda: root.exists() and all("." not in one.name for one in root.iterdir()))
    return root


async def test_a_retired_replica_is_listed_and_checked_beside_its_broker_and_removed(
    program: Program, tmp_path: Path
) -> None:
    async with running_cluster(tmp_path) as cluster:
        root = await move_all(cluster)
        (folder,) = root.iterdir()
        broker = str(root.parent)
        table = await in_thread(program, "retired", "list", broker)
        assert (table.exit_code, table.stderr) == (0, "")
        assert folder.name in table.stdout
        (row,) = json.loads((await in_thread(program, "retired", "list", broker, "--json")).stdout)
        assert (row["logs"], row["state"]) == (2, "kept"), "the internal one is among them"
        assert row["size_bytes"] > sum(map(len, VALUES))
        checked = await in_thread(program, "verify", str(folder))
        assert (checked.exit_code, checked.stderr) == (0, "")
        assert "checked 2 logs" in checked.stdout
        assert "no damage" in checked.stdout
        refused = await in_thread(program, "retired", "remove", broker, folder.name, input="")
        assert refused.exit_code == 2
        assert "--yes" in refused.stderr
        refused = await in_thread(program, "retired", "remove", broker, "../logs", "--yes")
        assert refused.exit_code == 2
        removed = await in_thread(program, "retired", "remove", broker, folder.name, "--yes")
        assert (removed.exit_code, removed.stdout) == (0, f"removed {folder.name}\n")
        assert not list(root.iterdir())


async def test_acknowledged_messages_come_back_from_a_retired_replica(
    program: Program, tmp_path: Path
) -> None:
    """As docs/operations.md says."""
    async with running_cluster(tmp_path) as cluster:
        root = await move_all(cluster)
        (folder,) = root.iterdir()
        (log,) = folder.glob("logs/*/orders")
        listed = await in_thread(program, "salvage", str(folder))
        assert "3 messages" in listed.stdout
        assert "--put-back" not in listed.stdout
        lost = await typed("salvage", str(folder), "--print", str(log))
        server = ("--server", cluster.register.url)
        await typed("produce", "again", *server, given=lost)
        read = await typed("consume", "again", "-e", *server)
        assert read == b"".join(value + b"\n" for value in VALUES)


async def test_verify_and_salvage_say_what_is_retired(program: Program, tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        root = await move_all(cluster)
    (folder,) = root.iterdir()
    broker = str(root.parent)
    checked = program("verify", broker)
    assert checked.exit_code == 0
    assert f"retired: {folder}" in checked.stdout
    (finding,) = json.loads(program("verify", broker, "--json").stdout)["findings"]
    assert finding["kind"] == "retired"
    assert "1 retired replica:" in program("salvage", broker).stdout
    (log,) = folder.glob("logs/*/orders/*.log")
    damaged = bytearray(log.read_bytes())
    damaged[40] ^= 1
    log.write_bytes(damaged)
    checked = program("verify", str(folder))
    assert checked.exit_code == 5
    assert "damage" in checked.stdout


def test_moving_and_partly_removed_replicas_are_distinguished_from_kept_ones(
    program: Program, tmp_path: Path
) -> None:
    name = "3-5-20260131T120000Z"
    (tmp_path / f"retired/{name}.moving/logs/3").mkdir(parents=True)
    (tmp_path / f"retired/{name}.2.deleted/replicas").mkdir(parents=True)
    rows = json.loads(program("retired", "list", str(tmp_path), "--json").stdout)
    assert sorted(row["state"] for row in rows) == ["deleted", "moving"]
    refused = program("retired", "remove", str(tmp_path), f"{name}.moving", "--yes")
    assert refused.exit_code == 1
    assert "start the broker" in refused.stderr
    assert program("retired", "remove", str(tmp_path), f"{name}.2.deleted", "--yes").exit_code == 0
    assert [one.name for one in (tmp_path / "retired").iterdir()] == [f"{name}.moving"]


@pytest.mark.parametrize(("seconds", "bound"), [("-1", "at least 0"), ("inf", "at most ")])
def test_an_invalid_time_to_keep_retired_replicas_is_refused(
    program: Program, seconds: str, bound: str
) -> None:
    refused = program("serve", "--role", "broker", "--keep-retired", seconds)
    assert refused.exit_code == 2
    assert f"--keep-retired has to be {bound}" in refused.stderr
