"""Histories in the form of Jepsen's files: EDN (https://github.com/edn-format/edn), a map in each
line, which Knossos and Elle read.

::

    {:index 0, :time 1500000, :process 0, :name "till-1", :type :invoke, :f :write, :value 3}
    {:index 1, :time 2500000, :process 0, :name "till-1", :type :ok, :f :write, :value 3}

Jepsen's processes are numbers, do one operation at a time, and end with one whose outcome is
unknown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, cast

import attrs

from octopi.testing.errors import MisuseError

_KEYWORD: Final = re.compile(r"[A-Za-z*!_?$%&=<>][\w.*+!?$%&=<>-]*")
_NAMES: Final = {"read": "r", "append": "append"}


@attrs.frozen
class JepsenEvent:
    """The beginning or the end of an operation."""

    name: str
    """That of its process."""
    function: str
    key: Hashable
    """None: the value stands alone."""
    type: str
    """``invoke``, ``ok``, ``fail`` or ``info``."""
    value: object
    at_s: float
    operation: int
    """The number of the operation, the same for its two events."""
    reason: str = ""


def jepsen_lines(events: Iterable[JepsenEvent], *, as_transactions: bool) -> Iterator[str]:
    """The line for each of *events*, without line ends; see `OperationHistory.write_jepsen`.

    Raises:
      MisuseError: if EDN has no form for a value, or with *as_transactions* for a function.
    """
    processes = _Processes()
    for index, event in enumerate(events):
        function, value = event.function, event.value
        if as_transactions:
            function, value = "txn", _transaction(event)
        elif event.key is not None:
            value = [event.key, value]
        if not _KEYWORD.fullmatch(function):
            raise MisuseError(f"the function {function!r} is no keyword of EDN: use one word")
        parts = [
            f":index {index}",
            f":time {round(event.at_s * 1e9)}",
            f":process {processes.number(event)}",
            f":name {edn(event.name)}",
            f":type :{event.type}",
            f":f :{function}",
            f":value {_micro_operations(value) if as_transactions else edn(value)}",
        ]
        if event.reason:
            parts.append(f":error {edn(event.reason)}")
        yield f"{{{', '.join(parts)}}}"


class _Processes:
    """The numbers of processes."""

    def __init__(self) -> None:
        self._idle: dict[str, list[int]] = {}
        self._busy: dict[int, int] = {}
        self._count = 0

    def number(self, event: JepsenEvent) -> int:
        """The number of the process that has *event*."""
        idle = self._idle.setdefault(event.name, [])
        if event.type == "invoke":
            if not idle:
                idle.append(self._count)
                self._count += 1
            number = self._busy[event.operation] = idle.pop(0)
            return number
        number = self._busy.pop(event.operation)
        if event.type != "info":
            idle.append(number)
        return number


def _transaction(event: JepsenEvent) -> list[tuple[str, object, object]]:
    """The operation as micro-operations: function, key and value of each."""
    if event.function == "txn":
        steps = cast("Iterable[tuple[str, object]]", event.value)
        return [(_micro_name(name), event.key, value) for name, value in steps]
    return [(_micro_name(event.function), event.key, event.value)]


def _micro_name(function: str) -> str:
    if function not in _NAMES:
        raise MisuseError(
            f"Elle's list-append has no function {function!r}: write it without as_transactions"
        )
    return _NAMES[function]


def _micro_operations(value: object) -> str:
    steps = cast("list[tuple[str, object, object]]", value)
    return f"[{' '.join(f'[:{name} {edn(key)} {edn(one)}]' for name, key, one in steps)}]"


def edn(value: object) -> str:
    """*value* in EDN.  Sets and maps are sorted, so the same value has the same text.

    Raises:
      MisuseError: if there is no form for it.
    """
    match value:
        case None:
            return "nil"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case bytes():
            return json.dumps(value.decode("latin-1"), ensure_ascii=False)
        case list() | tuple():
            items = cast("Iterable[Any]", value)
            return f"[{' '.join(edn(one) for one in items)}]"
        case set() | frozenset():
            elements = cast("Iterable[Any]", value)
            return f"#{{{' '.join(sorted(edn(one) for one in elements))}}}"
        case Mapping():
            pairs = sorted(f"{edn(name)} {edn(one)}" for name, one in value.items())
            return f"{{{', '.join(pairs)}}}"
        case _:
            raise MisuseError(
                f"{type(value).__name__} has no form in EDN: note numbers, texts, bytes, and "
                f"lists, sets or dictionaries of these, not {value!r}"
            )


def _float(value: float) -> str:
    if math.isnan(value):
        return "##NaN"
    if math.isinf(value):
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)
