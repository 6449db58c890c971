"""The private names of Trio that the simulator uses, and whether they are as it expects them."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Final

import trio

try:
    from trio._core import _run as trio_run
except ImportError:  # pragma: no cover  # `private_problem` reports it
    trio_run = None  # type: ignore[assignment]

__all__ = ["TRIO_VERSIONS_KNOWN", "private_problem", "trio_run"]

TRIO_VERSIONS_KNOWN: Final = ("0.31.0", "0.32.0", "0.33.0", "0.34.0", "0.35.0")
"""The versions that this was tried with.  Others work as long as the names are the same."""

_PRIVATE_PARAMETERS: Final = {
    "setup_runner": (
        "clock",
        "instruments",
        "restrict_keyboard_interrupt_to_checkpoints",
        "strict_exception_groups",
    ),
    "unrolled_run": ("runner", "async_fn", "args", "host_uses_signal_set_wakeup_fd"),
}
_PRIVATE_NAMES: Final = (
    "_ALLOW_DETERMINISTIC_SCHEDULING",
    "_r",
    "GLOBAL_RUN_CONTEXT",
    "Runner",
    "CancelStatus",
    "Nursery",
    "Task",
)
_RUNNER_FIELDS: Final = (
    "runq",
    "deadlines",
    "io_manager",
    "waiting_for_idle",
    "tasks",
    "instruments",
)
_NURSERY_FIELDS: Final = ("_closed", "_pending_excs")
_TASK_FIELDS: Final = ("_next_send", "_next_send_fn", "_cancel_status")
_STATUS_FIELDS: Final = ("_scope", "_parent")


@cache
def private_problem() -> str | None:
    """Why Trio's private names can't be used; None if they are as this module expects them."""
    if trio_run is None:  # pragma: no cover
        return f"trio {trio.__version__} has no trio._core._run"
    for name in (*_PRIVATE_PARAMETERS, *_PRIVATE_NAMES):
        if not hasattr(trio_run, name):
            return f"trio {trio.__version__} has no {name}"
    for name, parameters in _PRIVATE_PARAMETERS.items():
        if tuple(inspect.signature(getattr(trio_run, name)).parameters) != parameters:
            return f"{name} of trio {trio.__version__} has other parameters"
    for name in _RUNNER_FIELDS:
        if name not in inspect.get_annotations(trio_run.Runner):
            return f"Runner of trio {trio.__version__} has no {name}"
    for name in _TASK_FIELDS:
        if name not in inspect.get_annotations(trio_run.Task):
            return f"Task of trio {trio.__version__} has no {name}"
    for name in _NURSERY_FIELDS:
        if name not in trio_run.Nursery._nested_child_finished.__code__.co_names:
            return f"Nursery of trio {trio.__version__} has no {name}"
    for name in _STATUS_FIELDS:
        if name not in inspect.get_annotations(trio_run.CancelStatus):
            return f"CancelStatus of trio {trio.__version__} has no {name}"
    return None
