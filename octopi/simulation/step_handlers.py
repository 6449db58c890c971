"""Maps steps to the methods of an observer that handle them, checked by the type checker.

An observer registers its methods once.  The method for a step takes a `StepEvent` of that step, or
of a class that several steps share, and reads its fields from `StepEvent.step`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from octopi.simulation.kernel.world import Event, StepEvent
from octopi.tracing.step import Step

TakenStep = TypeVar("TakenStep", bound=Step)


class StepHandlers:
    """The methods of one observer."""

    def __init__(self) -> None:
        self._handlers: dict[str, Callable[[Any], None]] = {}
        """The handler of each kind of event."""

    def on(self, handler: Callable[[StepEvent[TakenStep]], None], *steps: type[TakenStep]) -> None:
        """Have *handler* called with the events of *steps*."""
        self._handlers.update((one.text, handler) for one in steps)

    def on_word(self, handler: Callable[[Event], None], *words: str) -> None:
        """Have *handler* called with the simulation's own events of the kinds *words*."""
        self._handlers.update((one, handler) for one in words)

    def add(self, others: StepHandlers) -> None:
        """Have the methods of *others* called, too, each after those registered here for the same
        kind of event."""
        for kind, handler in others._handlers.items():
            known = self._handlers.get(kind)
            self._handlers[kind] = handler if known is None else _both(known, handler)

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of events that are handled, for
        `octopi.simulation.kernel.world.World.observe`."""
        return frozenset(self._handlers)

    def of(self, event: Event) -> Callable[[Any], None] | None:
        """The handler of *event*; None if there is none."""
        return self._handlers.get(event.what)


def _both(first: Callable[[Any], None], second: Callable[[Any], None]) -> Callable[[Any], None]:
    def handle(event: Event) -> None:
        first(event)
        second(event)

    return handle
