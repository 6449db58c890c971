"""What nodes and tools store is for their own user alone, whatever the umask says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.processes import NodeProcesses
from octopi.operating_system import SystemDisk, open_private
from tests.cli.conftest import Program


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(directory: Path) -> dict[str, int]:
    """Of all that is in *directory*, and of itself."""
    return {
        str(path.relative_to(directory)): stat.S_IMODE(path.lstat().st_mode)
        for path in [directory, *directory.rglob("*")]
    }


def wider(directory: Path) -> dict[str, str]:
    """What others may do something with."""
    return {name: oct(mode) for name, mode in modes(directory).items() if mode & 0o077}


@pytest.mark.parametrize("mask", [0, 0o022, 0o077], ids=oct)
def test_nodes_keep_their_data_from_other_users(
    mask: int, nodes: NodeProcesses, program: Program, tmp_path: Path
) -> None:
    with umask(mask):
        register = nodes.register("register")
        broker = nodes.broker(register, "broker")
        (tmp_path / "lines").write_text("umbrella\n")
        to = ("--server", register.url)
        made = program("topics", "create", "orders", "--flush-before-ack", *to)
        assert made.exit_code == 0, made.stderr
        assert program("produce", "orders", "-f", "lines", *to).exit_code == 0
        broker.terminate()
        register.terminate()
    for directory in (register.data_dir, broker.data_dir):
        found = modes(directory)
        assert wider(directory) == {}
        assert any(not name.endswith("lock") and mode == 0o600 for name, mode in found.items())
        assert found["."] == 0o700
    assert "open to other users" not in register.log() + broker.log()


def test_a_data_directory_that_is_open_to_others_is_warned_of(
    nodes: NodeProcesses, tmp_path: Path
) -> None:
    directory = tmp_path / "register"
    directory.mkdir()
    directory.chmod(0o755)
    register = nodes.register("register")
    assert "the data directory is open to other users" in register.log()
    assert f"chmod -R go-rwx {directory}" in register.log()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    register.terminate()
    directory.chmod(0o700)
    before = register.log()
    register.restart()
    assert "open to other users" not in register.log()[len(before) :]


async def test_new_and_replaced_files_are_private_whatever_mode_the_old_ones_had(
    tmp_path: Path,
) -> None:
    disk = SystemDisk()
    with umask(0):
        for name in ("state", "state.new"):
            (tmp_path / name).write_text("old")
        await disk.replace_file(str(tmp_path / "state"), b"new")
        disk.open(str(tmp_path / "log"), create=True).close()
        disk.make_directory(str(tmp_path / "a" / "b" / "c"))
        disk.make_directory(str(tmp_path / "a" / "b") + "/")
        open_private(tmp_path / "copy", "wb").close()
    found = modes(tmp_path)
    assert [found[name] for name in ("state", "log", "copy")] == [0o600] * 3
    assert [found[name] for name in ("a", "a/b", "a/b/c")] == [0o700] * 3
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        disk.make_directory(str(tmp_path / "file"))


def test_files_with_keys_are_private_and_only_public_files_are_readable(
    program: Program, tmp_path: Path
) -> None:
    with umask(0):
        assert program("token", "keygen", "sign.json", "--public", "keys.json").exit_code == 0
        assert program("tls", "dev-ca", "tls").exit_code == 0
    found = modes(tmp_path)
    assert (found["sign.json"], found["tls/node.key"]) == (0o600, 0o600)
    assert {name for name in found if found[name] & 0o077 and name != "."} == {
        "keys.json",
        "tls",
        "tls/ca.pem",
        "tls/node.pem",
    }
    assert not [name for name in found if found[name] & 0o022 and name != "."]
