"""Files with the join secret, as nodes and commands are given them."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path
from typing import Final

from octopi.cli.failures import CommandError, ExitCode
from octopi.errors import InvalidOptionError
from octopi.limits import JOIN_SECRETS_MAX
from octopi.operating_system import SystemClock
from octopi.security.join_secret import SECRET_FILE, JoinSecrets, SecretSource, secret_text
from octopi.security.secret_file import SecretFile

_NOT_FOR: Final = stat.S_IRWXO | stat.S_IWGRP
"""Modes of a file that others may read or write.  A group may read it, as secrets are often given
to containers."""

_READ_BYTES_MAX: Final = 64 * 1024


def secret_of_broker(path: str) -> SecretSource:
    """The secrets in the file at *path*, for a broker.  The file may be missing: it waits for the
    register to make it, or for somebody to copy it.

    Raises:
      InvalidOptionError: if the file is no good.
    """
    advice = f"copy {SECRET_FILE} of the register's data directory, and name it: --join-secret FILE"
    file = SecretFile(path, lambda: _read(path), SystemClock(), advice)
    file.load()
    return file


def secret_of_register(path: str) -> SecretSource:
    """The secrets in the file at *path*, which a register was given.

    Raises:
      InvalidOptionError: if the file is no good.
      CommandError: if there is none.
    """
    file = SecretFile(path, lambda: _read(path), SystemClock(), "it was removed")
    if not file.load().keys:
        raise CommandError(
            f"{path}: no such file; leave --join-secret out, and the register makes a secret of "
            f"its own, or make one with `octopi-node secret {shlex.quote(path)}`",
            ExitCode.USAGE,
        )
    return file


def secret_of_operator(path: str) -> SecretSource:
    """The secrets in the file at *path*, for a command that operates a cluster.

    Raises:
      InvalidOptionError: if the file is no good.
      CommandError: if there is none.
    """
    file = SecretFile(path, lambda: _read(path), SystemClock(), "it was removed")
    if not file.load().keys:
        raise CommandError(
            f"{path}: no such file; it is {SECRET_FILE} in the register's data directory",
            ExitCode.USAGE,
        )
    return file


def refuse_open_file(path: str) -> None:
    """Make sure that other users of the machine don't know what is in *path*, if it is there.

    Raises:
      InvalidOptionError: if they may.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # whoever reads it says what is wrong
    if mode & _NOT_FOR:
        raise InvalidOptionError(
            f"{path} is open to other users of the machine, who could be brokers with it: "
            f"`chmod 600 {shlex.quote(path)}`, and exchange the secret if one may have read it"
        )


def add_secret(path: Path, secret: bytes) -> int:
    """Make a file with *secret*, or add it to one; return how many are in it then.

    Raises:
      InvalidOptionError: if the file is no good.
      CommandError: if it is full.
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
                f"{path} has {count} secrets already: remove the oldest ones from it, here and on "
                "all other nodes",
                ExitCode.USAGE,
            )
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        # In one write: a node that reads the file meanwhile has all of it or none.
        file.write(secret_text(secret, before)[len(before) :].encode())
        file.flush()
        os.fsync(file.fileno())
    return count + 1


def _read(path: str) -> bytes:
    refuse_open_file(path)
    with open(path, "rb") as file:
        return file.read(_READ_BYTES_MAX)
