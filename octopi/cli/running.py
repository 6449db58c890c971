"""Runs commands and nodes under Trio, and handles signals.

The first signal cancels a client command that has nothing to finish.  It stops another one, or a
node, gracefully; the second one cancels it.  Code of either never sees a `KeyboardInterrupt`.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import trio

from octopi.cli.failures import CommandError, InterruptedByUserError, leaves
from octopi.errors import UnreachableError

_T = TypeVar("_T")

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def run(body: Callable[[], Awaitable[_T]], summary: Callable[[], str] | None = None) -> _T:
    """Run *body* to its end; Ctrl-C and SIGTERM cancel it.

    Raises:
      InterruptedByUserError: if a signal cancelled it; the text is *summary*().
    """

    async def main() -> list[_T]:
        results: list[_T] = []
        async with trio.open_nursery() as nursery:

            async def cancel_at_signal(
                task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
            ) -> None:
                with trio.open_signal_receiver(*_SIGNALS) as signals:
                    task_status.started()
                    await anext(signals)
                nursery.cancel_scope.cancel()

            await nursery.start(cancel_at_signal)
            results.append(await body())
            nursery.cancel_scope.cancel()
        return results

    results = trio.run(main)
    if not results:
        raise InterruptedByUserError(summary() if summary is not None else "interrupted")
    return results[0]


class Interruption:
    """The first Ctrl-C or SIGTERM, for a command that has something to finish then."""

    def __init__(self) -> None:
        self.grace_s = 0.0
        """How long the command may finish, from now on."""
        self._came_at = math.inf
        self._bounded: dict[trio.CancelScope, float] = {}
        """Blocks that are entered, and how long each may go on."""

    @property
    def has_come(self) -> bool:
        """Whether it came."""
        return self._came_at < math.inf

    def come(self) -> None:
        """It comes now."""
        self._came_at = trio.current_time()
        for scope, bound_s in self._bounded.items():
            scope.deadline = self._came_at + bound_s

    @contextmanager
    def bounds(self, bound_s: float) -> Iterator[None]:
        """Cancels its block *bound_s* after the interruption."""
        with trio.CancelScope(deadline=self._came_at + bound_s) as scope:
            self._bounded[scope] = bound_s
            try:
                yield
            finally:
                del self._bounded[scope]


def run_to_finish(
    body: Callable[[Interruption], Awaitable[None]], summary: Callable[[], str]
) -> None:
    """Run *body* to its end; after Ctrl-C or SIGTERM it may finish for its `Interruption.grace_s`,
    and the second signal cancels it.

    Raises:
      InterruptedByUserError: if a signal came; the text begins with *summary*().
    """

    async def main() -> tuple[bool, bool]:
        interruption = Interruption()
        is_finished = False
        async with trio.open_nursery() as nursery:

            async def heed_signals(
                task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
            ) -> None:
                with trio.open_signal_receiver(*_SIGNALS) as signals:
                    task_status.started()
                    await anext(signals)
                    interruption.come()
                    with trio.move_on_after(interruption.grace_s):
                        await anext(signals)
                nursery.cancel_scope.cancel()

            await nursery.start(heed_signals)
            await body(interruption)
            is_finished = True
            nursery.cancel_scope.cancel()
        return interruption.has_come, is_finished

    is_interrupted, is_finished = trio.run(main)
    if is_interrupted:
        doubt = "" if is_finished else "; not all is confirmed, so the last of it may come again"
        raise InterruptedByUserError(summary() + doubt)


def run_node(body: Callable[[trio.Event], Awaitable[None]], *, stop_at_eof: bool = False) -> None:
    """Run the node *body* until it ends.  It gets an event, and has to end soon after that is set.

    The first SIGINT or SIGTERM sets the event, and so does the end of standard input if
    *stop_at_eof*; the second signal cancels the node.

    Raises:
      InterruptedByUserError: if the second signal cancelled it.
      CommandError: if it can't listen at its address.
    """

    async def main() -> bool:
        stop = trio.Event()
        async with trio.open_nursery() as nursery:

            async def heed_signals(
                task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
            ) -> None:
                with trio.open_signal_receiver(*_SIGNALS) as signals:
                    task_status.started()
                    await anext(signals)
                    stop.set()
                    await anext(signals)
                nursery.cancel_scope.cancel()

            await nursery.start(heed_signals)
            if stop_at_eof:
                nursery.start_soon(_set_at_eof, stop)
            await body(stop)
            nursery.cancel_scope.cancel()
            return True
        return False

    try:
        ended_by_itself = trio.run(main)
    except* UnreachableError as group:
        # The node's own address: it can't listen there.
        raise CommandError(str(leaves(group)[0])) from None
    if not ended_by_itself:
        raise InterruptedByUserError(
            "stopped at once by the second signal; the next start checks what was not flushed"
        )


async def _set_at_eof(stop: trio.Event) -> None:
    """Set *stop* when standard input ends, because the program that started this node has ended."""
    stdin = trio.lowlevel.FdStream(os.dup(0))
    async with stdin:
        while await stdin.receive_some():
            pass
    stop.set()
