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
from typing import Final

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


async def collect_garbage() -> None:
    """Collect the garbage of this process, until cancelled.

    Objects that exist at the beginning belong to the program itself and live until it ends, so they
    are frozen, and no collection visits them; a collection of them would take 30 ms.
    """
    gc.collect()
    gc.freeze()
    usual = gc.get_threshold()
    gc.set_threshold(_YOUNG_COUNT, _MIDDLE_COUNT, _NEVER)
    took_s = 0.0
    try:
        while True:
            await trio.sleep(interval_s(took_s))
            _, _, survived_count = gc.get_count()
            if survived_count:
                began = time.perf_counter()
                gc.collect()
                took_s = time.perf_counter() - began
    finally:
        gc.set_threshold(*usual)
