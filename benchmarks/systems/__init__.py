"""The systems that are measured, each with the best Python client and settings that we know.

Each module has the same names: `TITLE`, `KINDS`, `missing`, `serving`, and `run` with the
roles of its client processes (``produce``, ``consume``, ``request``, ``pace``, ``receive``,
``flush``, ``subscribe``), as far as it takes part in the workloads that need them.
"""

from __future__ import annotations

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
