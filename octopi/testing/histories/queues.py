"""Checks histories of queues: Jepsen's ``checker/total-queue``, with order by key, for each queue
by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from math import inf
from typing import Any, Final

import attrs

from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    Judgement,
    by_key,
    elements,
    frozen,
    judged,
)
from octopi.testing.histories.deliveries import Deliveries, ParcelArrival
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory

_FUNCTIONS: Final = ("enqueue", "dequeue", "drain")


@attrs.frozen
class QueueChecker(HistoryChecker):
    """What was put into a queue comes out of it, and nothing else does.

    Functions: ``enqueue`` with a message; ``dequeue``, which returns a message, or None if there is
    none; and ``drain``, which returns a list of all messages that are left, in their order.  A
    message is told from others by its value.  One that is enqueued again, because nobody knows
    whether it was, may come out once for each attempt that has not failed.
    """

    at_least_once: bool = True
    """Whether each message that was acknowledged has come out when the history ends: drain the
    queue first.  A ``dequeue`` whose outcome is unknown may have taken one message, and a ``drain``
    any number."""
    at_most_once: bool = True
    """Whether no message comes out twice."""
    order_by: Callable[[Any], Hashable] | None = None
    """The key of a message: messages with the same key come out in the order in which they were
    enqueued, as far as one was acknowledged before the other one's ``enqueue`` began.  None: there
    is no order."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        for key, operations in by_key(history, _FUNCTIONS, "QueueChecker").items():
            found += self._contradictions(key, operations)
        return judged(found)

    def _contradictions(
        self, key: Hashable, operations: list[ClientOperation]
    ) -> Iterator[Contradiction]:
        deliveries = Deliveries("enqueued", "dequeued", key)
        for one in operations:
            if one.function == "enqueue":
                order_key = None if self.order_by is None else self.order_by(one.value)
                deliveries.send(frozen(one.value), order_key, one)
        unknown: float = 0
        for one in operations:
            if one.function == "enqueue":
                continue
            if one.is_ok:
                for arrival in _arrivals(one):
                    deliveries.arrive(arrival)
            elif one.may_have_happened:
                unknown += 1 if one.function == "dequeue" else inf
        yield from deliveries.invented()
        if self.at_least_once:
            yield from deliveries.lost(unknown)
        if self.at_most_once:
            yield from deliveries.duplicates()
        if self.order_by is not None:
            yield from deliveries.out_of_order()


def _arrivals(operation: ClientOperation) -> list[ParcelArrival]:
    if operation.function == "drain":
        return [ParcelArrival(one, operation, at) for at, one in enumerate(elements(operation))]
    if operation.result is None:
        return []
    return [ParcelArrival(frozen(operation.result), operation)]
