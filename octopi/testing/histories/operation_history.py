"""The operations of a program under test, as Jepsen notes them: when each began, when it ended,
and whether it happened.

Each operation has a process, a function, a value, and two moments.  Its *status* says whether it
happened.  One whose outcome is unknown stays *info*: it happened at any moment after it began, or
never.

Events are numbered in the order in which they were noted.  If the number at which one operation
ended is less than the one at which another began, the first one was over before; checkers use
these numbers, because several events may have the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import StrEnum
from math import inf
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs
import trio

from octopi.testing.errors import MisuseError
from octopi.testing.histories.jepsen import JepsenEvent, jepsen_lines

_SHOWN_MAX: Final = 72


class OperationStatus(StrEnum):
    """Whether an operation happened, in Jepsen's words."""

    OPEN = "open"
    """It has not ended; judged like `INFO`."""
    OK = "ok"
    """It happened between its beginning and its end."""
    FAIL = "fail"
    """It surely has not happened, and never will."""
    INFO = "info"
    """It happened at some moment after its beginning, or never."""


@attrs.define(eq=False)
class ClientOperation:
    """One operation of a program under test; `OperationHistory.invoke` makes it.

    As a context manager it ends the operation at the end of the block, unless `ok`, `fail` or
    `info` has done so: as *info* if an exception leaves the block, else as *ok* with the value that
    it was invoked with.
    """

    process: str
    """Who does it; one after another, if it is one process."""
    function: str
    """What is done, such as ``read``; each checker lists the functions that it knows."""
    value: object
    """What it is done with; None if there is nothing."""
    key: Hashable
    """The object that it is done to, for checkers that judge several separately; None if there is
    only one."""
    invoked: int
    """The number of the event of its beginning."""
    invoked_s: float
    """When it began (s)."""
    _end: Callable[[], tuple[int, float]] = attrs.field(repr=False)
    status: OperationStatus = OperationStatus.OPEN
    result: object = None
    """What it returned; None unless its status is ok."""
    reason: str = ""
    """Why it failed, or why nobody knows whether it did."""
    ended: float = inf
    """The number of the event of its end; infinite if there is none."""
    ended_s: float = inf
    """When it ended (s)."""

    @property
    def completed(self) -> float:
        """The number of the event before which it happened, if it happened: infinite for one whose
        outcome is unknown."""
        return self.ended if self.status is OperationStatus.OK else inf

    @property
    def is_ok(self) -> bool:
        """Whether it surely happened."""
        return self.status is OperationStatus.OK

    @property
    def may_have_happened(self) -> bool:
        """Whether it is not known to have failed."""
        return self.status is not OperationStatus.FAIL

    def ok(self, *result: object) -> None:
        """It happened.  *result*, at most one, is what it returned; by default the value that it
        was invoked with.

        Raises:
          MisuseError: if it has ended already, or there are several results.
        """
        if len(result) > 1:
            raise MisuseError(f"{self}: ok takes one result; pass a tuple if there are several")
        self._ends(OperationStatus.OK, "")
        self.result = result[0] if result else self.value

    def fail(self, reason: str = "") -> None:
        """It surely has not happened, and will not, for example because it was refused.

        Raises:
          MisuseError: if it has ended already.
        """
        self._ends(OperationStatus.FAIL, reason)

    def info(self, reason: str = "") -> None:
        """Nobody knows whether it happened, for example after a time-out; it may still happen.

        Raises:
          MisuseError: if it has ended already.
        """
        self._ends(OperationStatus.INFO, reason)

    def _ends(self, status: OperationStatus, reason: str) -> None:
        if self.status is not OperationStatus.OPEN:
            raise MisuseError(f"{self}: it has ended already, an operation ends once")
        self.ended, self.ended_s = self._end()
        self.status, self.reason = status, reason

    def __enter__(self) -> ClientOperation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.status is not OperationStatus.OPEN:
            return
        if error is not None:
            # The text of `trio.Cancelled` names tasks by their addresses, which differ each time.
            text = str(error) if isinstance(error, Exception) else ""
            self.info(text or type(error).__name__)
        elif self.value is None:
            self.info("it ended without a result")
            raise MisuseError(
                f"{self}: nobody said what it returned: call ok(result), fail() or info() in its "
                "block"
            )
        else:
            self.ok()

    def __str__(self) -> str:
        where = "" if self.key is None else f" of {shown(self.key)}"
        text = f"{self.process}: {self.function}{where}"
        if self.value is not None:
            text += f" {shown(self.value)}"
        if self.is_ok and self.result is not self.value:
            text += f" gave {shown(self.result)}"
        if not self.is_ok:
            text += f", {self.status}" + (f" ({self.reason})" if self.reason else "")
        return text


class OperationHistory:
    """All operations of a test, in the order in which they began.

    ::

        history = octopi.testing.OperationHistory()
        with history.invoke("till-1", "write", 3, key="hats"):
            await producer.send("stock", b"3", key=b"hats")
        with history.invoke("till-1", "read", key="hats") as operation:
            operation.ok(await read_stock())

    Times are those of *now* (s), by default of Trio's clock, which is virtual in a simulated
    cluster.  A history is used by one thread.
    """

    def __init__(self, now: Callable[[], float] = trio.current_time) -> None:
        self.operations: list[ClientOperation] = []
        """All operations; don't change this list."""
        self._now = now
        self._event_count = 0

    def invoke(
        self, process: str, function: str, value: object = None, *, key: Hashable = None
    ) -> ClientOperation:
        """Note that *process* begins to do *function* with *value*, to the object *key*.

        Call this before the operation can have any effect.  Use the result as a context manager,
        or end it with `ClientOperation.ok`, `ClientOperation.fail` or `ClientOperation.info`;
        without any of these its outcome stays unknown.
        """
        number, now = self._event()
        operation = ClientOperation(process, function, value, key, number, now, self._event)
        self.operations.append(operation)
        return operation

    def write_jepsen(
        self, path: str | PathLike[str], *, key: Hashable = None, as_transactions: bool = False
    ) -> None:
        """Write the history to the file at *path* in Jepsen's form: EDN, a map in each line.

        ``:time`` is in nanoseconds.  Processes are numbers, as Jepsen has them, and ``:name`` is
        the one that they have here; what follows an operation with an unknown outcome has a new
        number.  Bytes become strings, in Latin-1.

        *key*: write only the operations on that object, with their bare values, as Knossos takes
        them; by default the values of operations on keys are pairs, as those of
        ``jepsen.independent``.
        *as_transactions*: write ``append``, ``read`` and ``txn`` as transactions, as Elle takes
        them for ``list-append``.

        Raises:
          MisuseError: if EDN has no form for a value, or with *as_transactions* for a function.
        """
        lines = jepsen_lines(self._jepsen_events(key), as_transactions=as_transactions)
        text = "".join(f"{line}\n" for line in lines)
        Path(path).write_text(text, encoding="utf-8")

    def _jepsen_events(self, key: Hashable) -> Iterator[JepsenEvent]:
        events: list[tuple[float, JepsenEvent]] = []
        for one in self.operations:
            if key is not None and one.key != key:
                continue
            named = (one.process, one.function, None if key is not None else one.key)
            begun = JepsenEvent(*named, "invoke", one.value, one.invoked_s, one.invoked)
            events.append((one.invoked, begun))
            if one.status is not OperationStatus.OPEN:
                value = one.result if one.is_ok else one.value
                over = JepsenEvent(*named, one.status, value, one.ended_s, one.invoked, one.reason)
                events.append((one.ended, over))
        events.sort(key=lambda event: event[0])
        return (event for _, event in events)

    def _event(self) -> tuple[int, float]:
        """The number and the time of the next event."""
        self._event_count += 1
        return self._event_count - 1, self._now()


def shown(value: object) -> str:
    """*value* as text of at most 72 characters."""
    text = repr(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
