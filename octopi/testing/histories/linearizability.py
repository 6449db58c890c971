"""Looks for an order of the operations on one register.

A history is linearizable if there is an order of its operations, each at one moment between its
beginning and its end, that a single register could have had (Herlihy and Wing, "Linearizability",
1990).  The search goes through the events and keeps each *configuration* that is possible so far:
what the register holds, and which operations that are still going on have happened already.  It is
the "just-in-time" search of Lowe, "Testing for linearizability" (2017), from the beginning: when
an operation ends, each configuration in which it has not happened yet has to let it happen, maybe
behind others that are going on.  If no configuration is left, there is no order.

Three things keep the configurations few, and none of them changes the result:

- A read that is going on happens while the register holds what it returned, before that changes.
- Operations with an unknown outcome are going on for ever.  Those with the same function and values
  can stand for each other, so they are only counted.
- Of two configurations that differ only in which of these have happened, one is dropped if all that
  happened in the other has happened in it as well: the other one has more left to happen.

Still, with many unknown outcomes they may be too many.  So the search is done twice.  The first one
keeps only some configurations at a time, those with the fewest unknown operations that happened:
if it finds an order, there is one.  If it doesn't, the second one keeps all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from math import inf
from typing import Final, Literal, NamedTuple, TypeAlias

import attrs

from octopi.testing.histories.operation_history import ClientOperation

_NARROW: Final = 16
"""The number of configurations that the first search keeps at a time."""
_LOOKS: Final = 8
"""For each of these, the number of configurations that it looks at to find more."""

RegisterFunction: TypeAlias = Literal["read", "write", "cas"]


@attrs.frozen(eq=False)
class RegisterStep:
    """What an operation does to a register."""

    operation: ClientOperation
    function: RegisterFunction
    expected: Hashable
    """What it has to hold before, for a read or a ``cas``."""
    written: Hashable
    """What it holds afterwards, for a write or a ``cas``."""

    def is_possible(self, value: Hashable) -> bool:
        """Whether the operation can happen when the register holds *value*."""
        return self.function == "write" or self.expected == value


class TooLargeError(Exception):
    """The search took more steps than allowed."""


@attrs.frozen
class Impossible:
    """The first operation that no order allows."""

    step: RegisterStep
    held: dict[Hashable, ClientOperation | None]
    """What the register may have held just before, each with an operation that wrote it."""


_Group: TypeAlias = "tuple[Hashable, int]"
"""What the register holds, and the places of the operations going on that have happened: bits."""
_Used: TypeAlias = "tuple[int, ...]"
"""How many of each class of operations with an unknown outcome have happened."""


class _Budget:
    """The steps that are left."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def spend(self, steps: int) -> None:
        """Raise `TooLargeError` if *steps* aren't left."""
        self._steps -= steps
        if self._steps < 0:
            raise TooLargeError


class _Configurations:
    """Configurations without those that others make needless; each comparison takes a step."""

    def __init__(self, budget: _Budget) -> None:
        self.count = 0
        self._budget = budget
        self.groups: dict[_Group, dict[_Used, ClientOperation | None]] = {}
        """By what was used, the operation that wrote what the register holds."""

    def add(self, group: _Group, used: _Used, writer: ClientOperation | None) -> bool:
        """Add a configuration; return whether it is needed."""
        members = self.groups.setdefault(group, {})
        self._budget.spend(1 + len(members))
        if used in members or any(_is_within(one, used) for one in members):
            return False
        for one in [one for one in members if _is_within(used, one)]:
            del members[one]
            self.count -= 1
        members[used] = writer
        self.count += 1
        return True

    def __iter__(self) -> Iterator[_Configuration]:
        for (value, done), members in self.groups.items():
            for used, writer in members.items():
                yield _Configuration(value, done, used, writer)


class _Configuration(NamedTuple):
    value: Hashable
    done: int
    used: _Used
    writer: ClientOperation | None


def _is_within(less: _Used, more: _Used) -> bool:
    """Whether no class has been used more often in *less* than in *more*; classes beyond the end
    are unused."""
    if len(less) > len(more):
        return not any(less[len(more) :]) and _is_within(less[: len(more)], more)
    return all(one <= other for one, other in zip(less, more, strict=False))


def find_impossible(
    steps: list[RegisterStep], initial: Hashable, steps_max: int
) -> Impossible | None:
    """The first operation that no order of *steps*, which are in the order in which they began,
    allows on a register that holds *initial* at first; None if there is an order.

    Raises:
      TooLargeError: if the search takes more than *steps_max* comparisons of configurations.
    """
    budget = _Budget(steps_max)
    narrow = _RegisterSearch(steps, initial, budget, _NARROW)
    found = narrow.impossible()
    if found is None or not narrow.has_dropped:
        return found
    return _RegisterSearch(steps, initial, budget, inf).impossible()


class _RegisterSearch:
    """Looks for an order of *steps*, in the order in which they began, on a register that holds
    *initial* at first, and keeps *width* configurations at a time."""

    def __init__(
        self, steps: list[RegisterStep], initial: Hashable, budget: _Budget, width: float
    ) -> None:
        self.has_dropped = False
        """Whether there were more configurations, so that an order may have been overlooked."""
        self._budget = budget
        self._width = width
        self._steps = steps
        self._open: dict[int, RegisterStep] = {}
        """Operations that are going on and will end, by their place: a bit."""
        self._places: dict[int, int] = {}
        """The places by the number of the operation's beginning."""
        self._classes: dict[tuple[Hashable, ...], int] = {}
        """Classes of operations with an unknown outcome, by function and values."""
        self._examples: list[RegisterStep] = []
        """For each class one of its operations."""
        self._begun: list[int] = []
        """For each class the number of operations that have begun."""
        self._now = _Configurations(budget)
        self._now.add((initial, 0), (), None)

    def impossible(self) -> Impossible | None:
        """The first operation that no order among those that were kept allows; None if there is an
        order."""
        events = [(one.operation.invoked, False, one) for one in self._steps]
        events += [
            (int(one.operation.ended), True, one) for one in self._steps if one.operation.is_ok
        ]
        for _, is_end, step in sorted(events, key=lambda event: event[0]):
            if not is_end:
                self._begin(step)
            elif (found := self._end(step)) is not None:
                return found
        return None

    def _begin(self, step: RegisterStep) -> None:
        if step.operation.is_ok:
            place = 1
            while place in self._open:
                place <<= 1
            self._open[place] = step
            self._places[step.operation.invoked] = place
            return
        kind = (step.function, step.expected, step.written)
        number = self._classes.setdefault(kind, len(self._begun))
        if number == len(self._begun):
            self._begun.append(0)
            self._examples.append(step)
        self._begun[number] += 1

    def _end(self, step: RegisterStep) -> Impossible | None:
        """Keep the configurations in which *step* can have happened."""
        place = self._places.pop(step.operation.invoked)
        after = _Configurations(self._budget)
        seen = _Configurations(self._budget)
        waiting = deque(self._now)
        for one in waiting:
            seen.add((one.value, one.done), one.used, one.writer)
        looked = 0
        while waiting:
            if after.count >= self._width or (after.count and looked >= _LOOKS * self._width):
                self.has_dropped = True
                break
            looked += 1
            one = waiting.popleft()
            if one.done & place:
                after.add((one.value, one.done & ~place), one.used, one.writer)
            elif step.function == "read" and step.expected == one.value:
                after.add((one.value, one.done), one.used, one.writer)
            else:
                # A write, too, may have to wait: for others whose values were read before it.
                for other in self._next(one):
                    if seen.add((other.value, other.done), other.used, other.writer):
                        # First those with no more unknown outcomes.
                        is_unknown = other.used != one.used
                        (waiting.append if is_unknown else waiting.appendleft)(other)
        del self._open[place]
        if after.groups:
            self._now = after
            return None
        held = {one.value: one.writer for one in self._now}
        return Impossible(step, held)

    def _next(self, one: _Configuration) -> Iterator[_Configuration]:
        """The configurations after one more operation that writes."""
        for place, step in self._open.items():
            if not one.done & place and step.function != "read" and step.is_possible(one.value):
                yield self._happen(one, place, step)
        for number, step in enumerate(self._examples):
            used = one.used + (0,) * (number + 1 - len(one.used))
            if used[number] < self._begun[number] and step.is_possible(one.value):
                used = (*used[:number], used[number] + 1, *used[number + 1 :])
                yield self._happen(one._replace(used=used), 0, step)

    def _happen(self, one: _Configuration, place: int, step: RegisterStep) -> _Configuration:
        """The configuration after *step*, which writes; reads that can happen do so before."""
        done = one.done | place
        for bit, read in self._open.items():
            if read.function == "read" and read.expected == one.value:
                done |= bit
        return _Configuration(step.written, done, one.used, step.operation)
