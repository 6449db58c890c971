"""Retries: how long to wait between attempts, which errors may pass, and when to give up.

The waits have full jitter below a bound that doubles, after M. Brooker, "Exponential Backoff And
Jitter" (AWS Architecture Blog, 2015): clients that lost the same node at the same time reconnect
spread out, not all at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from octopi.environment import Environment, Randomness
from octopi.errors import (
    ConnectionLostError,
    OctopiError,
    RedirectLoopError,
    RefusedError,
    UnreachableError,
)
from octopi.limits import BACKOFF_S_FIRST, BACKOFF_S_MAX

_T = TypeVar("_T")

_DOUBLINGS_MAX: Final = 16
"""With more doublings the bound stays at `BACKOFF_S_MAX`, and the power could overflow."""


def backoff_s(randomness: Randomness, failures: int) -> float:
    """A random wait (seconds) before the next attempt, after *failures* earlier waits."""
    bound_s = min(BACKOFF_S_MAX, BACKOFF_S_FIRST * 2.0 ** min(failures, _DOUBLINGS_MAX))
    return bound_s * randomness.random()


class Backoff:
    """The waits between the attempts of one operation."""

    def __init__(self, randomness: Randomness) -> None:
        self._randomness = randomness
        self.attempts = 0
        """Waits handed out since the last success."""

    def next_s(self) -> float:
        """The next wait (seconds)."""
        wait_s = backoff_s(self._randomness, self.attempts)
        self.attempts += 1
        return wait_s

    def reset(self) -> None:
        """An attempt succeeded: the next waits are short again."""
        self.attempts = 0


def may_pass(error: OctopiError) -> bool:
    """Whether the same request can succeed later."""
    if isinstance(error, RefusedError):
        return error.retryable
    return isinstance(error, UnreachableError | ConnectionLostError)


def reworded(error: OctopiError, text: str) -> OctopiError:
    """A new error of the class of *error*, with *text*.  Each place that raises needs an object of
    its own."""
    if not isinstance(error, RefusedError):
        return type(error)(text)
    again = type(error)(text, error.status, error.address, error.epoch, error.offset)
    if isinstance(error, RedirectLoopError) and isinstance(again, RedirectLoopError):
        again.tried = error.tried
    return again


async def retry(
    environment: Environment,
    timeout_s: float,
    what: str,
    attempt: Callable[[], Awaitable[_T]],
    passes: Callable[[OctopiError], bool] = may_pass,
) -> _T:
    """Repeat *attempt* until it succeeds, and return its result.  *passes*: whether an error can
    pass.

    Raises:
      OctopiError: the error of *attempt*, if it can't pass; otherwise, after *timeout_s*, the last
          error, with *what* in its text.
    """
    clock = environment.clock
    backoff = Backoff(environment.randomness)
    last: OctopiError = ConnectionLostError("no answer")
    with clock.timeout(timeout_s):
        while True:
            try:
                return await attempt()
            except OctopiError as error:
                if not passes(error):
                    raise
                last = error
            await clock.sleep_until(clock.now() + backoff.next_s())
    tried = f"{what}: given up after {timeout_s:g} s and {backoff.attempts} failed attempts; last"
    raise reworded(last, f"{tried}: {last.args[0]}") from last
