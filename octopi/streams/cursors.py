"""Cursors: they keep a cache between readers and nodes from giving one old answer for ever.

A cursor counts intervals of time.  A reader sends the cursor of its last answer with its next
request, and gets a later one.
"""

from __future__ import annotations

import re
from typing import Final

_BEGIN_S: Final = 1_728_432_000
"""2024-10-09 00:00:00 UTC, as the protocol says."""
_INTERVAL_S: Final = 20
_JITTER_MAX: Final = 3600 // _INTERVAL_S
_CURSOR: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


def cursor(now_ms: int, shown: str, random_byte: int) -> str:
    """The cursor of an answer at *now_ms* to a request that has shown the cursor *shown*; always
    later than that one."""
    now = (now_ms // 1000 - _BEGIN_S) // _INTERVAL_S
    if _CURSOR.fullmatch(shown) is None or int(shown) < now:
        return str(now)
    return str(int(shown) + 1 + random_byte % _JITTER_MAX)
