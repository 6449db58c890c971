"""What the nodes of a cluster in the test's process did, step by step, in one order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from octopi.environment import Trace, TraceEvent
from tests.kit.cluster import Died


@attrs.frozen
class Event:
    """One edge of a step."""

    number: int
    """Events of all nodes in their order."""
    node: str
    step: str
    facts: Mapping[str, Any]

    def holds(self, **facts: object) -> bool:
        """Whether it speaks of those."""
        return all(self.facts.get(name) == value for name, value in facts.items())


class Observation:
    """Everything that was observed."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._end: tuple[str, str] | None = None

    def end_at(self, step: str, node: str) -> None:
        """Have *node* die at its next *step*."""
        self._end = (step, node)

    def of(self, node: str) -> Trace:
        """The observer for *node*."""

        def observe(step: TraceEvent) -> None:
            self.events.append(Event(len(self.events), node, step.text, step.facts))
            if self._end == (step.text, node):
                self._end = None
                raise Died

        return observe

    def all(
        self, step: str, node: str | None = None, *, since: int = 0, **facts: object
    ) -> list[Event]:
        """The events of that step, at *node* or anywhere, with those facts."""
        return [
            event
            for event in self.events[since:]
            if event.step == step and node in {None, event.node} and event.holds(**facts)
        ]

    def first(
        self,
        step: str,
        node: str | None = None,
        *,
        since: int = 0,
        where: Callable[[Event], bool] = lambda event: True,
        **facts: object,
    ) -> Event:
        """The first of them."""
        found = [one for one in self.all(step, node, since=since, **facts) if where(one)]
        assert found, f"{step!r} was not observed at {node or 'any node'} with {facts}"
        return found[0]


def assert_in_order(events: Iterable[Event]) -> None:
    """Fail unless *events* came in the order in which they are given."""
    given = list(events)
    assert [one.step for one in sorted(given, key=lambda one: one.number)] == [
        one.step for one in given
    ]
