"""Decides when a node collects cyclic garbage.

A full collection visits all objects.  With 10,000 connections it takes a second, and no task runs
meanwhile.  Python begins one whenever the objects that survived younger collections have grown by a
quarter, which happens often while connections come or messages wait.  Here the duration of a full
collection decides when the next one may begin.  Most garbage is young, and most objects are not
part of a cycle and need no collection at all.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs
import trio

SHARE: Final = 0.01
"""The share of a node's time that full collections may take."""
INTERVAL_S_MIN: Final = 5.0
"""The shortest time between two full collections."""
_YOUNG_COUNT: Final = 5_000
"""New objects between two collections of the youngest generation."""
_MIDDLE_COUNT: Final = 10
"""Collections of the youngest generation between two collections of the middle one."""
_NEVER: Final = 1 << 30
"""Collections of the middle generation before Python begins a full one by itself."""


def interval_s(took_s: float) -> float:
    """Seconds to wait after a full collection that took *took_s*."""
    return max(INTERVAL_S_MIN, took_s / SHARE)


@attrs.define
class _Collector:
    """Python's collector, which all nodes of this process share."""

    node_count: int = 0
    """How many nodes collect now."""
    usual: tuple[int, int, int] = (0, 0, 0)
    """Its thresholds before the first of them began."""

    @contextmanager
    def left_to_nodes(self) -> Iterator[None]:
        """Let it begin no full collection by itself, until the last node has ended."""
        if self.node_count == 0:
            self.usual = gc.get_threshold()
            gc.set_threshold(_YOUNG_COUNT, _MIDDLE_COUNT, _NEVER)
        self.node_count += 1
        try:
            yield
        finally:
            self.node_count -= 1
            if self.node_count == 0:
                gc.set_threshold(*self.usual)
                gc.unfreeze()


_COLLECTOR: Final = _Collector()


async def collect_garbage() -> None:
    """Collect the garbage of this process, until cancelled.  Several nodes of it may do so at once.

    Objects that exist at the beginning belong to the program itself and live until it ends, so they
    are frozen, and no collection visits them; a collection of them would take 30 ms.
    """
    gc.collect()
    gc.freeze()
    took_s = 0.0
    with _COLLECTOR.left_to_nodes():
        while True:
            await trio.sleep(interval_s(took_s))
            _, _, survived_count = gc.get_count()
            if survived_count:
                began = time.perf_counter()
                gc.collect()
                took_s = time.perf_counter() - began
