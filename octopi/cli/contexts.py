"""Contexts: named clusters that commands connect to, in a file of the user.

The file is ``contexts.toml`` in the folder ``octopi`` of ``$XDG_CONFIG_HOME`` (without it:
of ``~/.config``)::

    current = "prod"

    [contexts."prod"]
    server = "wss://a.example:7000,wss://b.example:7000"
    token_file = "/home/me/prod.token"
    tls_ca = "/home/me/prod-ca.pem"

It says where tokens are sent, so other users may neither read nor write it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from octopi.cli.failures import CommandError, ExitCode, did_you_mean
from octopi.printable import controls_fault

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_NOT_FOR: Final = stat.S_IRWXG | stat.S_IRWXO
_READ_BYTES_MAX: Final = 1_000_000
"""A thousand contexts have less; whatever is larger is another file."""


@attrs.frozen
class Context:
    """A cluster, and what a command needs to connect to it."""

    server: str
    token_file: str = ""
    tls_ca: str = ""


@attrs.frozen
class Contexts:
    """All contexts of a user."""

    contexts: Mapping[str, Context] = attrs.field(factory=dict)
    current: str = ""
    """The context that is in use; empty: none."""

    def get(self, name: str) -> Context:
        """The context *name*.

        Raises:
          CommandError: if there is none.
        """
        if name not in self.contexts:
            known = did_you_mean(name, sorted(self.contexts)) if self.contexts else ""
            raise CommandError(
                f"there is no context {name}{known} (`octopi-node context add` makes one)",
                ExitCode.USAGE,
            )
        return self.contexts[name]


def context_file(environ: Mapping[str, str]) -> Path:
    """The file with the contexts of the user.  A relative ``$XDG_CONFIG_HOME`` counts as not set
    (https://specifications.freedesktop.org/basedir-spec)."""
    configured = environ.get("XDG_CONFIG_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else _home() / ".config"
    return base / "octopi" / "contexts.toml"


def _home() -> Path:
    """The user's home; that of the system for a user without one, as there are in containers."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def read_contexts(file: Path) -> Contexts:
    """The contexts in *file*; a missing file has none.

    Raises:
      CommandError: if other users can read or write the file, or it is damaged.
    """
    try:
        with open(file, "rb") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            content = opened.read(_READ_BYTES_MAX + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", ExitCode.USAGE) from None
    if mode & _NOT_FOR:
        raise CommandError(
            f"{file} is open to other users of this machine (mode {stat.S_IMODE(mode):o}), and it "
            f"says where tokens are sent: look at it, then run `chmod 600 {file}`",
            ExitCode.USAGE,
        )
    import tomllib

    try:
        if len(content) > _READ_BYTES_MAX:
            raise ValueError(f"it has more than {_READ_BYTES_MAX} bytes")
        return _parsed(tomllib.loads(content.decode("utf-8")))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise CommandError(
            f"{file} is damaged: {why}; repair it, or remove it and add the contexts again with "
            "`octopi-node context add`",
            ExitCode.USAGE,
        ) from None


def client_values(
    environ: Mapping[str, str], name: str | None, why: str
) -> dict[tuple[str, str], tuple[object, str]]:
    """The settings of the section ``[client]`` that the context *name* has, with their source, of
    which *why* is a part.  None: of the context in use, if there is one.

    Raises:
      CommandError: if there is no such context, or the file is damaged.
    """
    found = read_contexts(context_file(environ))
    name = found.current if name is None else name
    if not name:
        return {}
    source = f"context {name} ({why})"
    fields = attrs.asdict(found.get(name))
    return {("client", key): (value, source) for key, value in fields.items()}


def _parsed(content: dict[str, Any]) -> Contexts:
    """Raises `ValueError` if *content* is not what `_written` writes."""
    current, tables = content.pop("current", ""), content.pop("contexts", {})
    if content:
        raise ValueError(f"there is no key {min(content)}")
    if not isinstance(current, str) or not isinstance(tables, dict):
        raise ValueError("current is a name, and contexts are sections [contexts.NAME]")
    contexts = {name: _context(name, fields) for name, fields in tables.items()}
    if current and current not in contexts:
        raise ValueError(f"current is {current!r}, and there is no such context")
    return Contexts(contexts, current)


def _context(name: str, fields: object) -> Context:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a context")
    if not isinstance(fields, dict) or not isinstance(fields.get("server"), str):
        raise ValueError(f"the context {name} has no server")
    for key, value in fields.items():
        if key not in attrs.fields_dict(Context):
            raise ValueError(f"the context {name} has no key {key}")
        if not isinstance(value, str) or controls_fault(value):
            raise ValueError(f"{key} of the context {name} is no line of text")
    return Context(**fields)


def check_context(name: str, context: Context) -> None:
    """Check that a context can be stored.

    Raises:
      CommandError: if its name or a value is not allowed.
    """
    try:
        _context(name, attrs.asdict(context))
    except ValueError as error:
        raise CommandError(
            f"{error}; names have letters, digits, '.', '_' and '-'", ExitCode.USAGE
        ) from None


@contextmanager
def changing(file: Path) -> Iterator[None]:
    """Keep other commands from changing *file* during the block.

    Raises:
      CommandError: if the directory can't be made or opened.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file.parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise CommandError(f"{file.parent}: {error.strerror}") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write_contexts(file: Path, contexts: Contexts) -> None:
    """Replace *file*, at once or not at all; only the user can read it.

    Raises:
      OSError: if it can't be written.
    """
    beside = file.with_name(f"{file.name}.new")
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(_written(contexts))
        opened.flush()
        os.fsync(descriptor)
    os.replace(beside, file)


def _written(contexts: Contexts) -> str:
    lines = [f"current = {_quoted(contexts.current)}", ""] if contexts.current else []
    for name, context in sorted(contexts.contexts.items()):
        lines.append(f"[contexts.{_quoted(name)}]")
        lines += [f"{key} = {_quoted(value)}" for key, value in attrs.asdict(context).items()]
        lines.append("")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """A basic string of TOML; *text* has no control characters, so JSON writes the same."""
    return json.dumps(text, ensure_ascii=False)
