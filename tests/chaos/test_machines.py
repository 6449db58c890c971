"""A machine that loses power keeps what was synced, perhaps more, and never less."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest
import trio

import octopi
from harness.machines import Machine
from harness.processes import NodeProcess, node_processes

WRITES = """
import os, sys
directory = sys.argv[1]
for name in ("synced", "unnamed"):
    descriptor = os.open(f"{directory}/{name}", os.O_CREAT | os.O_RDWR)
    os.write(descriptor, b"s" * 100)
    os.fsync(descriptor)
    os.write(descriptor, b"u" * 100)
    if name == "synced":
        top = os.open(directory, os.O_RDONLY)
        os.fsync(top)
"""


def written(tmp_path: Path) -> tuple[Machine, Path]:
    """A machine on which files were written and only partly synced."""
    machine, data_dir = Machine(tmp_path / "machine"), tmp_path / "data"
    data_dir.mkdir()
    program = tmp_path / "octopi_node.py"
    program.write_text(f"def main():\n    {'    '.join(WRITES.strip().splitlines(True))}\n")
    command = machine.node_command(str(data_dir))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    subprocess.run(command, check=True, env=environment)
    return machine, data_dir


def test_synced_bytes_outlive_a_power_failure_and_others_may_be_lost(tmp_path: Path) -> None:
    machine, data_dir = written(tmp_path)
    before = (machine.directory / "boot_id").read_text()
    assert [len((data_dir / name).read_bytes()) for name in ("synced", "unnamed")] == [200, 200]
    machine.lose_power(data_dir, random.Random(1))
    content = (data_dir / "synced").read_bytes()
    assert content.startswith(b"s" * 100)
    assert content != b"s" * 100 + b"u" * 100
    assert (machine.directory / "boot_id").read_text() != before
    # What came back from the device is on it: power that is lost again takes nothing more.
    assert machine.lose_power(data_dir, random.Random(2)) == []


def test_a_file_whose_name_was_not_synced_is_gone_in_some_cases(tmp_path: Path) -> None:
    seen = set()
    for seed in range(20):
        (tmp_path / str(seed)).mkdir()
        machine, data_dir = written(tmp_path / str(seed))
        machine.lose_power(data_dir, random.Random(seed))
        seen.add((data_dir / "unnamed").exists())
        if len(seen) == 2:
            break
    assert seen == {True, False}


@pytest.mark.process
def test_a_register_that_lost_power_is_the_same_one_again(tmp_path: Path) -> None:
    with node_processes(tmp_path) as nodes:
        machine = Machine(tmp_path / "machine")
        register = nodes.node("register", "register", "--gather", "0", machine=machine).start()
        assert (machine.directory / "synced").stat().st_size > 0
        nodes.broker(register).kill9()  # the first one forms the cluster
        cluster = cluster_of(register)
        register.lose_power(random.Random(1))
        register.restart()
        assert cluster_of(register) == cluster != ""


def cluster_of(register: NodeProcess) -> str:
    """The id that a register gave to its cluster."""

    async def ask() -> str:
        async with octopi.connect(register.url) as client:
            return (await client.admin.describe_cluster()).cluster

    return trio.run(ask)
