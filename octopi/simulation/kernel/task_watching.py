"""Tells a watcher when tasks run and when they wait, in a run that the driver turns.

Trio tells its instruments that; here the run has no instruments of Trio, but this object in their
place.  `octopi.simulation.kernel.trio_names` checks that the private names exist.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import outcome
import trio

if TYPE_CHECKING:
    from trio.lowlevel import Task


def fail_task(task: Any, error: BaseException) -> None:  # noqa: ANN401
    """Have *task*, which is about to run, get *error* in place of what it waited for."""
    nurseries = task.child_nurseries
    if nurseries and nurseries[-1]._closed:
        # It has waited for the tasks of a nursery, which would break if an exception was raised in
        # there; it raises what it has collected.
        nurseries[-1]._pending_excs.append(error)
    elif task._next_send is None:  # it has not begun
        task._next_send_fn, task._next_send = task.coro.throw, error
    elif isinstance(task._next_send, outcome.Outcome):
        task._next_send = outcome.Error(error)


def is_cancelled(task: Any) -> bool:  # noqa: ANN401
    """Whether *task*, which is about to run, gets a cancellation."""
    result = task._next_send
    return isinstance(result, outcome.Error) and isinstance(result.error, trio.Cancelled)


def is_within(task: Any, scope: trio.CancelScope) -> bool:  # noqa: ANN401
    """Whether *scope* is one of those that *task* is in."""
    status = task._cancel_status
    while status is not None and status._scope is not scope:
        status = status._parent
    return status is not None


class TaskWatcher(Protocol):
    """Is told when tasks run, and when they wait."""

    def will_run(self, task: Task) -> BaseException | None:
        """*task* is about to run, because what it waited for has happened.  An exception that is
        returned is raised in the task instead."""

    def has_run(self, task: Task) -> None:
        """*task* waits now, or has ended."""


class Instruments(dict[str, Any]):
    """The instruments of a run that has none, except perhaps a `TaskWatcher`.  Trio looks for some
    several times in each turn, and a dictionary answers faster than Trio's own class."""

    def __init__(self) -> None:
        super().__init__()
        self.watcher: TaskWatcher | None = None

    def watch(self, watcher: TaskWatcher) -> None:
        """Tell *watcher* of the tasks from now on."""
        self.watcher = watcher
        self.update({"before_task_step": None, "after_task_step": None})

    def call(self, name: str, task: Task) -> None:
        """Called by Trio for the two names in this dictionary."""
        assert self.watcher is not None
        if name == "after_task_step":
            self.watcher.has_run(task)
            return
        error = self.watcher.will_run(task)
        if error is not None:
            fail_task(task, error)

    def add_instrument(self, instrument: trio.abc.Instrument) -> None:
        raise RuntimeError("a scheduled run has no instruments; observe the World")

    remove_instrument = add_instrument
