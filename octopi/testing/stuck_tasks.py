"""Describes which tasks wait, and for what, for a test that makes no progress.

Only tasks in the test's own code are described: the test, and the programs on its hosts.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import trio

from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.kernel.owners import OWNER

_NO_TEST: Final = frozenset(
    {"octopi", "trio", "outcome", "contextlib", "pytest_trio", "trio_websocket"}
)
"""Packages whose code isn't described."""


def is_of_test(frame: FrameType) -> bool:
    """Whether *frame* is in the code of a test, or of a program under test."""
    name: str = frame.f_globals.get("__name__", "")
    return name.partition(".")[0] not in _NO_TEST


def who_waits() -> list[str]:
    """A line for each task that waits in the code of the test, or of one of its programs."""
    root = trio.lowlevel.current_root_task()
    found = [] if root is None else [_line(task) for task in _tasks(root)]
    return sorted(line for line in found if line)


def _tasks(task: trio.lowlevel.Task) -> Iterator[trio.lowlevel.Task]:
    yield task
    for nursery in task.child_nurseries:
        for child in nursery.child_tasks:
            yield from _tasks(child)


def _line(task: trio.lowlevel.Task) -> str:
    """The description of one task; empty if it has no code of the test."""
    place: tuple[FrameType, int] | None = None
    waits_in = ""
    for frame, line in task.iter_await_frames():
        if is_of_test(frame):
            place, waits_in = (frame, line), ""
        elif place is not None and not waits_in:
            waits_in = frame.f_code.co_qualname
    if place is None:
        return ""
    frame, line = place
    file = frame.f_code.co_filename
    source = linecache.getline(file, line).strip()
    what = f" `{source}`" if source else ""
    inside = f" ({waits_in})" if waits_in else ""
    where = f"{Path(file).name}:{line} in {frame.f_code.co_name}"
    return f"{_owner(task)} at {where}:{what}{inside}"


def _owner(task: trio.lowlevel.Task) -> str:
    life = task.context.get(OWNER)
    if not isinstance(life, ProcessLife):
        return "the test"
    paused = ", which is paused," if life.is_paused else ""
    return f"{life.host.name}{paused}"
