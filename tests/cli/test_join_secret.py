"""The join secret as operators see it: files, modes, options, and what is said."""

from __future__ import annotations

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from octopi.cli.config import join_secret_in
from octopi.cli.failures import CommandError, ExitCode, explain
from octopi.cli.node_processes import NodeProcesses, node_processes
from octopi.cli.secret_files import refuse_open_file, secret_of_broker, secret_of_register
from octopi.errors import InvalidOptionError
from octopi.security.join_secret import JoinSecrets
from octopi.security.secret_file import SecretFile
from tests.cli.conftest import Program


def secrets_in(file: Path) -> JoinSecrets:
    return JoinSecrets.parse(file.read_text(), str(file))


def test_the_command_makes_a_file_for_its_user_alone_and_adds_to_it(
    program: Program, tmp_path: Path
) -> None:
    file = tmp_path / "join-secret"
    result = program("secret", str(file))
    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    (first,) = secrets_in(file).keys
    for count in (2, 3, 4):
        result = program("secret", str(file))
        assert f"{count} join secrets; copy the file to all nodes" in result.stdout
        assert len(secrets_in(file).keys) == count
    assert secrets_in(file).keys[0] == first
    before = file.read_bytes()
    result = program("secret", str(file))
    assert result.exit_code == ExitCode.USAGE
    assert "remove the oldest ones" in result.stderr
    assert file.read_bytes() == before
    for key in secrets_in(file).keys:
        assert key.hex() not in result.stdout + result.stderr


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o620, 0o644, 0o666])
def test_a_secret_that_other_users_may_read_or_change_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "a secret"
    file.write_text("ab" * 32)
    file.chmod(mode)
    for read in (secret_of_broker, secret_of_register, refuse_open_file):
        with pytest.raises(InvalidOptionError, match="open to other users") as caught:
            read(str(file))
        assert f"`chmod 600 '{file}'`" in str(caught.value)
        assert explain(caught.value).code == ExitCode.USAGE
    for good in (0o600, 0o400, 0o640):
        file.chmod(good)
        assert secret_of_broker(str(file))() == secret_of_register(str(file))()


def test_a_broker_waits_for_its_file_and_a_register_does_not(tmp_path: Path) -> None:
    file = tmp_path / "join-secret"
    source = secret_of_broker(str(file))
    assert isinstance(source, SecretFile)
    assert "copy join-secret of the register's data directory" in source().missing
    with pytest.raises(
        CommandError, match=r"run `octopi-node secret .*, or leave --join-secret out"
    ):
        secret_of_register(str(file))
    file.write_text("cd" * 32)
    file.chmod(0o600)
    assert source().keys == (b"\xcd" * 32,)


# --- processes ---------------------------------------------------------------------------


@asynccontextmanager
async def register_alone(directory: Path) -> AsyncIterator[tuple[NodeProcesses, str]]:
    """A register that made a secret, as `demo` starts it."""
    async with node_processes(directory) as nodes:
        with trio.fail_after(60):
            yield nodes, await nodes.start("register", "register", "--gather", "0")


def leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def test_a_broker_without_the_registers_secret_ends_and_names_the_command(
    tmp_path: Path, program: Program
) -> None:
    program("secret", str(tmp_path / "another"))

    async def with_another_one() -> None:
        async with register_alone(tmp_path) as (nodes, url):
            made = tmp_path / "register" / "join-secret"
            assert stat.S_IMODE(made.stat().st_mode) == 0o600
            options = ("--register", url, "--join-secret")
            await nodes.start("broker-1", "broker", *options, str(made))  # as it should be
            await nodes.start("broker-2", "broker", *options, str(tmp_path / "another"))

    with pytest.raises(BaseExceptionGroup) as group:
        await with_another_one()
    said = str(leaf(group.value))
    assert "broker-2 did not start" in said
    assert "does not belong to the cluster of this one" in said
    assert "--join-secret FILE" in said


async def test_a_cluster_that_is_started_again_keeps_its_secret(tmp_path: Path) -> None:
    secrets = []
    for _ in range(2):
        async with register_alone(tmp_path) as (nodes, url):
            file = join_secret_in(str(tmp_path / "register"))
            await nodes.start("broker-1", "broker", "--register", url, "--join-secret", file)
        secrets.append(secrets_in(tmp_path / "register" / "join-secret"))
    assert secrets[0] == secrets[1]


async def test_a_register_whose_secret_was_removed_ends_and_a_copy_brings_it_back(
    tmp_path: Path,
) -> None:
    file = tmp_path / "register" / "join-secret"
    async with register_alone(tmp_path) as (nodes, url):
        await nodes.start("broker-1", "broker", "--register", url, "--join-secret", str(file))
    copy = file.rename(tmp_path / "copy")
    with pytest.raises(BaseExceptionGroup) as group:
        async with register_alone(tmp_path):
            pass
    assert "start with a broker's copy (--join-secret FILE)" in str(leaf(group.value))
    async with node_processes(tmp_path) as nodes:
        with trio.fail_after(60):
            options = ("--join-secret", str(copy))
            url = await nodes.start("register", "register", *options)
            await nodes.start("broker-1", "broker", "--register", url, *options)
