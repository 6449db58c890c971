"""Reads and writes the files with join secrets that nodes and commands are given."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Final

from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError
from octopi.limits import JOIN_SECRET_BYTES, JOIN_SECRETS_MAX
from octopi.operating_system import SystemClock, SystemRandomness
from octopi.security.join_secret import SECRET_FILE, JoinSecrets, SecretSource, secret_text
from octopi.security.secret_file import SecretFile

_NOT_FOR: Final = stat.S_IRWXO | stat.S_IWGRP
"""Mode bits that a secret file must not have.  A group may read it: containers often get secrets
that way."""

_READ_BYTES_MAX: Final = 64 * 1024


def secret_of_broker(path: str) -> SecretSource:
    """The secrets in the file at *path*, for a broker.  The file may be missing: the broker waits
    until the register makes it, or an operator copies it.

    Raises:
      InvalidOptionError: if the file is invalid, or open to other users.
    """
    advice = f"copy {SECRET_FILE} of the register's data directory, and name it: --join-secret FILE"
    file = SecretFile(path, lambda: _read(path), SystemClock(), advice)
    file.load()
    return file


def secret_of_register(path: str) -> SecretSource:
    """The secrets in the file at *path*, for a register.

    Raises:
      InvalidOptionError: if the file is invalid, or open to other users.
      CommandError: if the file is missing.
    """
    file = SecretFile(path, lambda: _read(path), SystemClock(), "it was removed")
    if not file.load().keys:
        raise CommandError(
            f"{path}: no such file; run `octopi-node secret {shlex.quote(path)}` to make one, or "
            "leave --join-secret out, so that the register makes its own",
            ExitCode.USAGE,
        )
    return file


def secret_of_operator(path: str) -> SecretSource:
    """The secrets in the file at *path*, for a command that operates a cluster.

    Raises:
      InvalidOptionError: if the file is invalid, or open to other users.
      CommandError: if the file is missing.
    """
    file = SecretFile(path, lambda: _read(path), SystemClock(), "it was removed")
    if not file.load().keys:
        raise CommandError(
            f"{path}: no such file; give --join-secret the file {SECRET_FILE} in the register's "
            "data directory, or a copy of it",
            ExitCode.USAGE,
        )
    return file


def refuse_open_file(path: str) -> None:
    """Make sure that other users of the machine can't read or write the file *path*, if it exists.

    Raises:
      InvalidOptionError: if they can.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # reading the file reports the error
    if mode & _NOT_FOR:
        raise InvalidOptionError(
            f"{path} is open to other users of this machine, who could join the cluster with it: "
            f"run `chmod 600 {shlex.quote(path)}`, and replace the secret if one may have read it "
            "(`octopi-node secret --help`)"
        )


def add_secret(path: Path, secret: bytes) -> int:
    """Add *secret* to the file *path*, made if missing; return the number of secrets in it.

    Raises:
      InvalidOptionError: if the file is invalid, or open to other users.
      CommandError: if it has `JOIN_SECRETS_MAX` secrets already.
      OSError: if it can't be written.
    """
    try:
        before = _read(str(path)).decode("ascii", "replace")
    except FileNotFoundError:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        before, count = "", 0
    else:
        count = len(JoinSecrets.parse(before, str(path)).keys)
        if count >= JOIN_SECRETS_MAX:
            raise CommandError(
                f"{path} has {count} secrets already: remove the oldest ones (the first lines), "
                "here and on all other nodes",
                ExitCode.USAGE,
            )
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        # In one write, so that a node that reads the file meanwhile gets the whole line or none.
        file.write(secret_text(secret, before)[len(before) :].encode())
        file.flush()
        os.fsync(file.fileno())
    return count + 1


def _read(path: str) -> bytes:
    refuse_open_file(path)
    with open(path, "rb") as file:
        return file.read(_READ_BYTES_MAX)


def shared_secret(directory: Path) -> str:
    """The file with a join secret in *directory*, made if it is missing, for nodes that one command
    runs.

    Raises:
      OSError: if it can't be written.
    """
    file = directory / SECRET_FILE
    if not file.exists():
        directory.mkdir(0o700, parents=True, exist_ok=True)
        add_secret(file, SystemRandomness().token_bytes(JOIN_SECRET_BYTES))
    return str(file)
