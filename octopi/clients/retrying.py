"""Asking again: which errors may pass, and for how long one question is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from octopi.clients.backoff import Backoff
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, OctopiError, RefusedError, UnreachableError

_T = TypeVar("_T")


def may_pass(error: OctopiError) -> bool:
    """Whether the same can succeed later."""
    if isinstance(error, RefusedError):
        return error.retryable
    return isinstance(error, UnreachableError | ConnectionLostError)


def reworded(error: OctopiError, text: str) -> OctopiError:
    """An error like *error* that says *text* (each place that raises needs its own object)."""
    if isinstance(error, RefusedError):
        return type(error)(text, error.status, error.address, error.epoch, error.offset)
    return type(error)(text)


async def retry(
    environment: Environment, timeout_s: float, what: str, attempt: Callable[[], Awaitable[_T]]
) -> _T:
    """The result of *attempt*, made again and again until it succeeds.

    Raises:
      OctopiError: what it raised, if that can't pass; else, after *timeout_s*, its last
          error, with *what* was tried in its text.
    """
    clock = environment.clock
    backoff = Backoff(environment.chance)
    last: OctopiError = ConnectionLostError("no answer")
    with clock.timeout(timeout_s):
        while True:
            try:
                return await attempt()
            except OctopiError as error:
                if not may_pass(error):
                    raise
                last = error
            await clock.sleep_until(clock.now() + backoff.next_s())
    tried = f"{what}: given up after {timeout_s:g} s and {backoff.attempts} failed attempts; last"
    raise reworded(last, f"{tried}: {last.args[0]}") from last
