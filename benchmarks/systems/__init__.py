"""The systems that are measured, each with the best Python client and settings that we know.

Each module has the same names: `TITLE`, `KINDS`, `missing`, `serving`, and `run`, which runs a
client process in one of its roles (such as ``produce``, ``consume`` or ``subscribe``).  A module
has the roles that the workloads of its `KINDS` need.

A module may also have these: `SERVED_BY`, the system whose servers it uses instead of its own;
`DIFFERS`, in what its work isn't that of the others; and `runs`, whether it takes part in a
workload of its `KINDS`.
"""

from __future__ import annotations

import importlib
import shutil
from importlib.util import find_spec
from types import ModuleType
from typing import Final

import attrs

from benchmarks.workloads import Workload

NAMES: Final = (
    *("octopi", "octopi_blocking", "octopi_relay"),
    *("kafka", "kafka_tool", "rabbitmq", "rabbitmq_tool"),
    *("redis", "redis_tool", "redis_memory", "redis_pubsub"),
    *("nats", "nats_tool", "nats_memory", "nats_core", "bare"),
)
OWN_TOOLS: Final = ("kafka_tool", "rabbitmq_tool", "redis_tool", "nats_tool")
"""The peers' own benchmark tools, each in its own language."""


@attrs.frozen
class Serving:
    """The running servers of a system."""

    address: str
    """The address that clients connect to."""
    pids: dict[str, int]
    """The process ids of the servers, by name."""
    version: str
    settings: str
    """The settings that aren't defaults, for people to read."""
    websocket: str = ""
    """The address that WebSocket subscribers connect to, if it is another one."""


def module_of(name: str) -> ModuleType:
    """The module of the system *name*."""
    return importlib.import_module(f"benchmarks.systems.{name}")


def server_of(name: str) -> str:
    """The system whose servers *name* uses."""
    return str(getattr(module_of(name), "SERVED_BY", name))


def takes_part(name: str, workload: Workload) -> bool:
    """Whether the system *name* takes part in *workload*."""
    module = module_of(name)
    if workload.kind not in module.KINDS:
        return False
    if workload.systems and not {name, server_of(name)} & {*workload.systems}:
        return False
    return bool(module.runs(workload)) if hasattr(module, "runs") else True


def not_installed(program: str, packages: dict[str, str], hint: str = "") -> str | None:
    """Why a system that needs *program* and *packages* (module -> its name in PyPI) can't be
    measured; None: all of them are installed.  *hint* says how *program* is installed."""
    if shutil.which(program) is None:
        return f"{program} is not installed" + (f" ({hint})" if hint else "")
    lacking = [name for module, name in packages.items() if find_spec(module) is None]
    if not lacking:
        return None
    return f"{' and '.join(lacking)} not installed (`make bench` uses the packages in .bench)"
