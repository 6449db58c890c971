"""Checks histories of pipelines that have to process each input exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any, Final

import attrs

from octopi.testing.histories.contradictions import (
    Contradiction,
    HistoryChecker,
    HistoryRule,
    Judgement,
    by_key,
    contradiction,
    elements,
    frozen,
    judged,
)
from octopi.testing.histories.deliveries import Deliveries, ParcelArrival
from octopi.testing.histories.operation_history import ClientOperation, OperationHistory, shown

_FUNCTIONS: Final = ("input", "output", "outputs")


def _itself(value: object) -> object:
    return value


def _alone(value: object) -> Collection[object]:
    return [value]


@attrs.frozen
class ExactlyOnceChecker(HistoryChecker):
    """Each input of a pipeline has each of its outputs, once.

    Functions: ``input`` with what was sent to the pipeline; ``output``, which returns one output
    that it has stored; and ``outputs``, which returns a list of outputs in the order in which they
    are stored.  Note each stored output once: for example, read all of them when the pipeline has
    come to rest.  An input whose outcome is unknown has all of its outputs or none.  An input that
    is sent again, because nobody knows whether it was, may have its outputs once for each attempt
    that has not failed.
    """

    outputs_of: Callable[[Any], Collection[object]] = _alone
    """The names of the outputs that an input has to have, in their order; by default one, which is
    named like the input itself."""
    name_of: Callable[[Any], object] = _itself
    """The name of an output, which tells it from all others; by default the output itself."""
    order_by: Callable[[Any], Hashable] | None = None
    """The key of an input: the outputs of inputs with the same key are stored in the order of these
    inputs, as far as one was acknowledged before the next one was sent.  None: there is no
    order."""

    def judge(self, history: OperationHistory) -> Judgement:
        found: list[Contradiction] = []
        for key, operations in by_key(history, _FUNCTIONS, "ExactlyOnceChecker").items():
            found += self._contradictions(key, operations)
        return judged(found)

    def _contradictions(
        self, key: Hashable, operations: list[ClientOperation]
    ) -> Iterator[Contradiction]:
        deliveries = Deliveries("sent the input of", "read", key)
        expected: list[tuple[ClientOperation, list[Hashable]]] = []
        for one in operations:
            if one.function == "input":
                names = [frozen(name) for name in self.outputs_of(one.value)]
                expected.append((one, names))
                order_key = None if self.order_by is None else self.order_by(one.value)
                for position, name in enumerate(names):
                    deliveries.send(name, order_key, one, position)
        for one in operations:
            if one.function != "input" and one.is_ok:
                read = elements(one) if one.function == "outputs" else [one.result]
                for place, output in enumerate(read):
                    deliveries.arrive(ParcelArrival(frozen(self.name_of(output)), one, place))
        yield from deliveries.invented()
        yield from deliveries.lost()
        yield from deliveries.duplicates()
        if self.order_by is not None:
            yield from deliveries.out_of_order()
        for one, names in expected:
            parcels = [deliveries.parcels[name] for name in names]
            there = [parcel for parcel in parcels if parcel.arrivals]
            missing = [parcel for parcel in parcels if not parcel.arrivals]
            if one.may_have_happened and there and missing and missing[0].acknowledged is None:
                text = f"the input of {one.process} has the output {shown(there[0].name)}, and not "
                text += shown(missing[0].name)
                arrived = there[0].arrivals[0].operation
                yield contradiction(HistoryRule.LOST, text, one, arrived, key=key)
