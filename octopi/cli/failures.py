"""How a command reports its end to the shell: an exit code, and an error in one line.

Scripts rely on the codes: their meaning never changes.  The line says what happened, which side
has to act, and what to do next.  This module adds what the text of an exception leaves out, once
for every command.
"""

from __future__ import annotations

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
    ExitCode.OK: "success",
    ExitCode.FAILED: "the command failed, or found the cluster unhealthy",
    ExitCode.USAGE: "an argument, an option or a setting is wrong",
    ExitCode.UNREACHABLE: "no node could be reached, or the connection was lost",
    ExitCode.REFUSED: "the cluster refused the request",
    ExitCode.DATA_FAULT: "stored data is damaged",
    ExitCode.INTERRUPTED: "stopped by Ctrl-C",
}
"""Every code and its meaning, as `--help` shows them."""


class CommandError(OctopiError):
    """A command failed; the text says what happened and what to do next."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = code


class InterruptedByUserError(CommandError):
    """Ctrl-C or SIGTERM ended the command; *summary* says what it had done by then."""

    def __init__(self, summary: str = "interrupted") -> None:
        super().__init__(summary, ExitCode.INTERRUPTED)


@attrs.frozen
class Explanation:
    """What the program prints and returns for an exception."""

    line: str
    code: ExitCode


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The hint after "there is no *word*": the most similar of *known*, or all of them."""
    names = list(known)
    close = similar(word, names)
    return f"; did you mean {close}?" if close else f"; there are {', '.join(names)}"


def similar(word: str, known: Iterable[str]) -> str | None:
    """The one of *known* that is most similar to *word*; None if none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(word, known, n=1)), None)


_SIDES: Final = {
    Blame.CALLER: "on your side",
    Blame.NODE: "on the node's side",
    Blame.NEITHER: "no fault of either side",
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
    """The exceptions in *error* that are not groups, without duplicates."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    found: dict[tuple[type, str], BaseException] = {}
    for member in error.exceptions:
        for leaf in leaves(member):
            found.setdefault((type(leaf), str(leaf)), leaf)
    return list(found.values())


def _rank(error: BaseException) -> int:
    """The lower the rank, the more *error* tells about why the command failed."""
    if isinstance(error, KeyboardInterrupt):
        return 0
    if not isinstance(error, OctopiError | OSError):
        return 1  # a bug comes before every expected error
    return 3 if isinstance(error, ConnectionLostError) else 2


def _explain(error: BaseException) -> Explanation:
    match error:
        case KeyboardInterrupt():
            return Explanation("interrupted", ExitCode.INTERRUPTED)
        case CommandError():
            return Explanation(str(error), error.exit_code)
        case HistoryForkedError(read_until=int()):
            return Explanation(
                f"{error}; the cluster lost acknowledged messages, and what you have read is "
                f"unchanged: run `{PROGRAM} consume {error.topic} -p {error.partition} -o "
                f"{error.offset}`, or add --on-fork resume",
                ExitCode.REFUSED,
            )
        case RefusedError():
            meaning = STATUS_MEANINGS[error.status]
            return Explanation(
                f"{error}; {_SIDES[meaning.fault]}: {meaning.next}", ExitCode.REFUSED
            )
        case UnreachableError():
            return Explanation(
                f"{error}; is a node running there? Give another address with --server, "
                f"or start a cluster with `{PROGRAM} dev`",
                ExitCode.UNREACHABLE,
            )
        case ConnectionLostError():
            return Explanation(
                f"{error}; the node ended or the network failed: check the node's log, then run "
                "this command again",
                ExitCode.UNREACHABLE,
            )
        case ProtocolError():
            return Explanation(
                f"{error}; the peer violated Octopi's protocol: check that --server is the address "
                f"of a node, and compare versions (`{PROGRAM} --version`)",
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
                f"a bug in {PROGRAM} itself: {type(error).__name__}: {error}; "
                "run the command again with --debug, and report the output",
                ExitCode.FAILED,
            )


def _next_step(error: OctopiError) -> str:
    if isinstance(error, RefusedError):
        meaning = STATUS_MEANINGS[error.status]
        return f"; {_SIDES[meaning.fault]}: {meaning.next}"
    return ""
