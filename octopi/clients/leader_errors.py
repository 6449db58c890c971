"""Errors of a log's leader that another attempt may not meet."""

from __future__ import annotations

from octopi.errors import Blame, ConnectionLostError, OctopiError, RefusedError, UnreachableError


def may_pass_at_a_leader(error: OctopiError) -> bool:
    """Whether the same request can succeed later, at the same leader or at the next one.  One whose
    disk or program fails does not lead for long."""
    match error:
        case RefusedError(meaning=meaning):
            return meaning.retryable or meaning.look_up or meaning.fault is Blame.NODE
        case _:
            return isinstance(error, ConnectionLostError | UnreachableError)
