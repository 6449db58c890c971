"""The systems that are measured, each with the best Python client and settings that we know.

Each module has the same names: `TITLE`, `KINDS`, `missing`, `serving`, and `run`, which runs a
client process in one of its roles (such as ``produce``, ``consume`` or ``subscribe``).  A module
has the roles that the workloads of its `KINDS` need.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Final

import attrs

NAMES: Final = ("octopi", "kafka", "rabbitmq", "redis", "nats", "nats_core", "bare")


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


def not_installed(program: str, packages: dict[str, str]) -> str | None:
    """Why a system that needs *program* and *packages* (module -> its name in PyPI) can't be
    measured; None: all of them are installed."""
    if shutil.which(program) is None:
        return f"{program} is not installed"
    lacking = [name for module, name in packages.items() if find_spec(module) is None]
    return f"{' and '.join(lacking)} not installed" if lacking else None
