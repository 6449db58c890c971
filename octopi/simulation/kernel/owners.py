"""Who owns a task: the process that has started it, or one of its tasks."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, Protocol

import trio


class Parkable(Protocol):
    """An owner of tasks, which can be paused or ended together with them."""

    is_paused: bool
    scope: trio.CancelScope
    """The cancel scope of its tasks."""


OWNER: Final[ContextVar[Parkable | None]] = ContextVar("OWNER", default=None)
"""The owner of a task, and of all tasks that it starts; None: no owner."""
