"""What a command tells the shell: exit codes, and an error in one line.

The codes are a promise to scripts: their meaning never changes.  A line says what went
wrong, whose side it is on and what to do next; which of that an exception already says
itself is decided here, once for every command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import IntEnum, unique
from typing import Final

import attrs

from octopi.errors import (
    STATUS_MEANINGS,
    Blame,
    ConnectionLostError,
    HistoryForkedError,
    InvalidOptionError,
    InvalidTopicError,
    NotDeliveredError,
    OctopiError,
    OutcomeUnknownError,
    ProtocolError,
    RefusedError,
    UnreachableError,
)

PROGRAM: Final = "octopi-node"


@unique
class ExitCode(IntEnum):
    """How a command ended."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REFUSED = 4
    DATA_FAULT = 5
    INTERRUPTED = 130


EXIT_CODES: Final[dict[ExitCode, str]] = {
    ExitCode.OK: "it worked",
    ExitCode.FAILED: "it failed, or what was looked at is not healthy",
    ExitCode.USAGE: "wrong use: an argument, an option, a setting",
    ExitCode.UNREACHABLE: "no node could be reached, or the connection was lost",
    ExitCode.REFUSED: "the cluster refused",
    ExitCode.DATA_FAULT: "stored data is damaged (verify)",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
}
"""Every code and its meaning, as `--help` shows them."""


class CommandError(OctopiError):
    """A command can't go on; the text says what is wrong and what to do."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.code = code


class InterruptedByUserError(CommandError):
    """Ctrl-C, or SIGTERM: what the command had done by then."""

    def __init__(self, summary: str = "interrupted") -> None:
        super().__init__(summary, ExitCode.INTERRUPTED)


@attrs.frozen
class Explanation:
    """An exception, for people."""

    line: str
    code: ExitCode


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """What to say behind "there is no *word*": the nearest of *known*, or all of them."""
    names = list(known)
    close = difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there are {', '.join(names)}"


_SIDES: Final = {
    Blame.CALLER: "on this side",
    Blame.NODE: "at the node",
    Blame.NOBODY: "nobody's fault",
}


def explain(error: BaseException) -> Explanation:
    """The one line and the exit code for *error*, which ended a command."""
    found = leaves(error)
    chosen = min(found, key=_rank)
    explanation = _explain(chosen)
    if len(found) > 1:
        line = f"{explanation.line} (and {len(found) - 1} more: --debug shows all)"
        return attrs.evolve(explanation, line=line)
    return explanation


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in *error* that are no groups, equal ones once."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    found: dict[tuple[type, str], BaseException] = {}
    for member in error.exceptions:
        for leaf in leaves(member):
            found.setdefault((type(leaf), str(leaf)), leaf)
    return list(found.values())


def _rank(error: BaseException) -> int:
    """Lower tells more about why a command failed."""
    if isinstance(error, KeyboardInterrupt):
        return 0
    if not isinstance(error, OctopiError | OSError):
        return 1  # a bug: nothing matters more
    return 3 if isinstance(error, ConnectionLostError) else 2


def _explain(error: BaseException) -> Explanation:
    match error:
        case KeyboardInterrupt():
            return Explanation("interrupted", ExitCode.INTERRUPTED)
        case CommandError():
            return Explanation(str(error), error.code)
        case HistoryForkedError(read_until=int()):
            return Explanation(
                f"{error}; the cluster lost what it had acknowledged, the messages on this side "
                f"are as they were: `consume {error.topic} -p {error.partition} -o "
                f"{error.offset}` prints what is there now, --on-fork resume goes on by itself",
                ExitCode.REFUSED,
            )
        case RefusedError():
            meaning = STATUS_MEANINGS[error.status]
            return Explanation(
                f"{error}; {_SIDES[meaning.fault]}: {meaning.next}", ExitCode.REFUSED
            )
        case UnreachableError():
            return Explanation(
                f"{error}; is a node running there? --server names another, "
                "`octopi-node dev` starts a cluster",
                ExitCode.UNREACHABLE,
            )
        case ConnectionLostError():
            return Explanation(
                f"{error}; the node or the network went away: look at the node, run this again",
                ExitCode.UNREACHABLE,
            )
        case ProtocolError():
            return Explanation(
                f"{error}; the other side does not speak Octopi's protocol as we do: "
                "check the address and the versions",
                ExitCode.UNREACHABLE,
            )
        case NotDeliveredError() | OutcomeUnknownError():
            cause = error.__cause__
            if isinstance(cause, OctopiError):
                return attrs.evolve(_explain(cause), line=f"{error}{_next_step(cause)}")
            return Explanation(str(error), ExitCode.FAILED)
        case InvalidOptionError() | InvalidTopicError():
            return Explanation(str(error), ExitCode.USAGE)
        case OctopiError():
            return Explanation(str(error), ExitCode.FAILED)
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            return Explanation(f"{name}{error.strerror or error}", ExitCode.FAILED)
        case _:
            return Explanation(
                f"a fault in octopi-node itself: {type(error).__name__}: {error}; "
                "run it again with --debug and report what it prints",
                ExitCode.FAILED,
            )


def _next_step(error: OctopiError) -> str:
    if isinstance(error, RefusedError):
        meaning = STATUS_MEANINGS[error.status]
        return f"; {_SIDES[meaning.fault]}: {meaning.next}"
    return ""
