"""Has `datetime.datetime` and `datetime.date` show the time of a run, as freezegun does it.

Their methods ask the operating system and not `time.time`, and C classes can't be changed.  So for
the time of a run other classes take their places: in the module `datetime`, and in each module
that has one of them.  They make ordinary objects, and ordinary objects are instances of them.
Modules of installed packages are only searched for the usual names.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date as RealDate, datetime as RealDatetime, tzinfo
from types import ModuleType
from typing import Any, Final

Now = Callable[[Any], float | None]
"""The virtual time for a caller (a frame), in seconds since 1970; None: the real one."""

_now: Now = lambda caller: None  # noqa: E731


class _AsReal(type):
    """Has a class take the real one's objects for its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.__mro__[1])


class VirtualDatetime(RealDatetime, metaclass=_AsReal):
    """`datetime.datetime` for the time of a run."""

    def __new__(cls, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        return RealDatetime(*args, **named)

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Any:  # noqa: ANN401
        now = _now(sys._getframe(1))
        return RealDatetime.now(tz) if now is None else RealDatetime.fromtimestamp(now, tz)

    @classmethod
    def utcnow(cls) -> Any:  # noqa: ANN401
        now = _now(sys._getframe(1))
        at = RealDatetime.now(UTC) if now is None else RealDatetime.fromtimestamp(now, UTC)
        return at.replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401
        now = _now(sys._getframe(1))
        return RealDatetime.today() if now is None else RealDatetime.fromtimestamp(now)


class VirtualDate(RealDate, metaclass=_AsReal):
    """`datetime.date` for the time of a run."""

    def __new__(cls, *args: Any, **named: Any) -> Any:  # noqa: ANN401
        return RealDate(*args, **named)

    @classmethod
    def today(cls) -> Any:  # noqa: ANN401
        now = _now(sys._getframe(1))
        return RealDate.today() if now is None else RealDate.fromtimestamp(now)


_VIRTUAL: Final = {id(RealDatetime): VirtualDatetime, id(RealDate): VirtualDate}
_NAMES: Final = ("datetime", "date", "dt")
_INSTALLED: Final = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))


_known: dict[str, tuple[int, list[str]]] = {}
"""Of each module by its name: how many names it had when it was searched, and those that were
found.  A search takes 20 ms for a thousand modules, and a short test as long as that."""


def _found(module: ModuleType) -> Iterator[tuple[dict[str, Any], str]]:
    """The names of *module* that stand for a real class."""
    names: dict[str, Any] | None = getattr(module, "__dict__", None)
    key = getattr(module, "__name__", None)
    if names is None or names is globals() or not isinstance(key, str):
        return
    size, found = _known.get(key, (-1, []))
    if size != len(names):
        searched = list(names) if _is_own(module) else _NAMES
        found = [name for name in searched if id(names.get(name)) in _VIRTUAL]
        _known[key] = len(names), found
    for name in found:
        if id(names.get(name)) in _VIRTUAL:
            yield names, name


def _is_own(module: ModuleType) -> bool:
    """Whether *module* is one of the user's, and not of Python or of an installed package."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and not any(part in file for part in _INSTALLED)


@contextmanager
def virtual_dates(now: Now) -> Iterator[None]:
    """Have dates show the time that *now* says, within the block."""
    global _now
    before, _now = _now, now
    changed: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for module in list(sys.modules.values()):
            for names, name in _found(module):
                changed.append((names, name, names[name]))
                names[name] = _VIRTUAL[id(names[name])]
        yield
    finally:
        _now = before
        for names, name, real in changed:
            names[name] = real
