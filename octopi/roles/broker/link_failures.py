"""Why a link to the register ended."""

from __future__ import annotations

from octopi.errors import Blame, OctopiError, RefusedError


def is_final(refusal: RefusedError) -> bool:
    """Whether the register refuses this broker for good.  A fault of the register itself, such as
    of its disk, may be repaired while the broker waits."""
    return not refusal.retryable and refusal.meaning.fault is not Blame.NODE


def first_error(group: BaseExceptionGroup[OctopiError]) -> OctopiError:
    """The first error in *group*, however deep it is."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, OctopiError)
    return error
