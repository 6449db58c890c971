"""Histories for the tests of checkers: by hand, or by clients of a reference object."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from itertools import count
from random import Random

import attrs

from octopi.testing import ClientOperation, OperationHistory

Ask = Callable[[Random], "tuple[str, object]"]
"""Chooses what a client does next: a function and a value."""
Apply = Callable[[str, object], object]
"""Does it to the reference object, and returns the result."""


def by_hand() -> OperationHistory:
    """A history whose events are a second apart, from 0 s on."""
    seconds = count()
    return OperationHistory(lambda: float(next(seconds)))


def done(
    history: OperationHistory,
    process: str,
    function: str,
    value: object = None,
    *result: object,
    key: Hashable = None,
) -> ClientOperation:
    """An operation that begins and ends at once."""
    operation = history.invoke(process, function, value, key=key)
    operation.ok(*result)
    return operation


@attrs.define(eq=False)
class _Running:
    operation: ClientOperation
    is_applied: bool = False
    result: object = None


class Execution:
    """Clients that use one reference object at the same time.

    Each operation is applied to it at one moment.  Some fail before that, and of some the client
    never learns the outcome: these are applied before, later, or never.
    """

    def __init__(self, random: Random, apply: Apply, *, clients: int = 3) -> None:
        self.history = by_hand()
        self._random = random
        self._apply = apply
        self._running: dict[str, _Running | None] = {f"c{one}": None for one in range(clients)}
        self._unknown: list[_Running] = []

    def run(self, ask: Ask, operation_count: int, *, unknown: float = 0.1) -> OperationHistory:
        """Do so many operations, and let all of them end; a share of *unknown* doesn't tell its
        outcome, and as many fail."""
        begun = 0
        while begun < operation_count or any(self._running.values()):
            client = self._random.choice(list(self._running))
            running = self._running[client]
            if running is None:
                if begun < operation_count:
                    begun += 1
                    self._running[client] = _Running(
                        self.history.invoke(client, *ask(self._random))
                    )
            elif self._random.random() < unknown:
                running.operation.info("no answer")
                self._running[client] = None
                if not running.is_applied:
                    self._unknown.append(running)
            elif not running.is_applied and self._random.random() < unknown:
                running.operation.fail("refused")
                self._running[client] = None
            elif not running.is_applied:
                self._do(running)
            else:
                running.operation.ok(running.result)
                self._running[client] = None
            if self._unknown and self._random.random() < 0.05:
                self._do(self._unknown.pop(self._random.randrange(len(self._unknown))))
        return self.history

    def _do(self, running: _Running) -> None:
        one = running.operation
        running.result = self._apply(one.function, one.value)
        running.is_applied = True


def numbers() -> Iterator[int]:
    """1, 2, and so on."""
    return count(1)
