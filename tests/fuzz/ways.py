"""Which ways a run takes through some source files: pairs of lines, one after the other.

That a line comes behind another one that it never came behind before is what makes an input
interesting.  `sys.settrace` is on every Python; only frames of the given files are followed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final


@contextmanager
def unfollowed() -> Iterator[None]:
    """Within this, no ways are collected, and what is called costs no more than ever."""
    before = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(before)


_LINES_MAX: Final = 1 << 20
"""Of all files together; the number of a line is below this."""

Tracer = Callable[[FrameType, str, Any], Any]


class Ways:
    """Collects them."""

    def __init__(self, files: Iterable[str], *, whole: bool = True) -> None:
        """*files*: absolute paths.  Unless *whole*, the line before is that of this call, or of
        one that it made."""
        self._whole = whole
        self._followers = {
            file: self._follower(index * 10_000) for index, file in enumerate(sorted(files))
        }
        self._last = 0
        self.taken: set[int] = set()
        """Those of the inputs so far."""

    def _follower(self, base: int) -> Tracer:
        def follow(frame: FrameType, event: str, _: object) -> Tracer:
            if event == "line":
                line = base + frame.f_lineno
                self.taken.add(self._last * _LINES_MAX + line)
                self._last = line
            return follow

        return follow

    def _enter(self, frame: FrameType, _: str, __: object) -> Tracer | None:
        if not self._whole:
            self._last = 0
        return self._followers.get(frame.f_code.co_filename)

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Within this, ways are collected."""
        before = sys.gettrace()
        self._last = 0
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
