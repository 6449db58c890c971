"""Writes JSON pages that are bounded in size, in slices between which other tasks run.

A page is one object.  Its lists end when they have as many entries as requested, or when the page
has `PAGE_BYTES_MAX`.  While the page is written, other tasks run from time to time, so a long list
doesn't delay them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, TypeVar

import trio

from octopi.limits import PAGE_BYTES_MAX, PAGE_SLICE_COUNT

Json = dict[str, Any]
_T = TypeVar("_T")

PAGE_COUNT_MAX: Final = 1_000
PAGE_COUNT_DEFAULT: Final = 100


class InSlices(Generic[_T]):
    """Iterates over *things* with a checkpoint after every *count* of them.  This isn't a
    generator, because callers may stop in the middle."""

    def __init__(self, things: Iterable[_T], count: int = PAGE_SLICE_COUNT) -> None:
        self._things = iter(things)
        self._count = self._left = count

    def __aiter__(self) -> InSlices[_T]:
        return self

    async def __anext__(self) -> _T:
        if not self._left:
            self._left = self._count
            await trio.lowlevel.checkpoint()
        self._left -= 1
        for one in self._things:
            return one
        raise StopAsyncIteration


def count_wanted(text: str, default: int = PAGE_COUNT_DEFAULT) -> int:
    """The number of entries that a query requests with ``limit``: 1 to `PAGE_COUNT_MAX`."""
    return max(1, min(number_wanted(text, default), PAGE_COUNT_MAX))


def number_wanted(text: str, default: int = 0) -> int:
    """The number in a query's *text*, if it is one of at most 18 digits; otherwise *default*."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= 18
    return int(text) if is_number else default


class PageWriter:
    """One JSON object that is being written."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size_bytes = 0

    def field(self, name: str, value: object) -> None:
        """Add a field with a short value."""
        self._append(f"{json.dumps(name)}:{_compact(value)}")

    async def entries(
        self, name: str, things: Iterable[_T], shape: Callable[[_T], Json | None], count_max: int
    ) -> _T | None:
        """Add the list *name* of at most *count_max* *things*, each as the JSON that *shape*
        returns; things for which it returns None are left out.  The first entry is always written.
        Returns the last entry that was written if there are more, None if all were written."""
        texts: list[str] = []
        last: _T | None = None
        cut = False
        async for one in InSlices(things):
            entry = shape(one)
            if entry is None:
                continue
            text = _compact(entry)
            is_full = self._size_bytes + len(text) > PAGE_BYTES_MAX
            if len(texts) >= count_max or (texts and is_full):
                cut = True
                break
            texts.append(text)
            self._size_bytes += len(text)
            last = one
        self._parts.append(f"{json.dumps(name)}:[{','.join(texts)}]")
        return last if cut else None

    def body(self) -> bytes:
        """The finished page."""
        return f"{{{','.join(self._parts)}}}\n".encode("ascii")

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._size_bytes += len(text)


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
