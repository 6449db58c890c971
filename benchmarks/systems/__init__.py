"""The systems that are measured, each with the best Python client and settings that we know.

Each module has the same names: `TITLE`, `KINDS`, `missing`, `serving`, and `run` with the
roles of its client processes (``produce``, ``consume``, ``request``, ``pace``, ``receive``,
``flush``, ``subscribe``), as far as it takes part in the workloads that need them.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from typing import Final

import attrs

NAMES: Final = ("octopi", "kafka", "rabbitmq", "redis", "nats", "nats_core", "bare")


@attrs.frozen
class Serving:
    """The servers of a system, running."""

    address: str
    """Where clients connect."""
    pids: dict[str, int]
    """Their processes, by name."""
    version: str
    settings: str
    """What is not the default, for people to read."""
    websocket: str = ""
    """Where WebSocket subscribers connect, if that is somewhere else."""


def not_installed(program: str, packages: dict[str, str]) -> str | None:
    """Why a system can't be measured without *program* and *packages* (module -> its name in PyPI);
    None: all of them are there."""
    if shutil.which(program) is None:
        return f"{program} is not installed"
    lacking = [name for module, name in packages.items() if find_spec(module) is None]
    return f"{' and '.join(lacking)} not installed" if lacking else None
