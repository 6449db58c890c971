"""What a run was measured on: the machine, the commit, Python and the clients."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any, Final

_CLIENTS: Final = (
    *("trio", "trio-websocket", "nats-py", "redis", "hiredis", "rstream"),
    "confluent-kafka",
)


def machine() -> dict[str, Any]:
    """The machine, the commit, and the versions of Python and of the clients."""
    return {
        "cpus": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": _commit(),
        "load_average": round(os.getloadavg()[0], 2),
        "clients": {name: version for name in _CLIENTS if (version := _version(name))},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return platform.processor()


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        check=False,
    )
    return done.stdout.strip() or "unknown"
