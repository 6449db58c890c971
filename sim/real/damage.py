"""Damages files of a broker that is down, as `octopi.simulation.faults.damage` does on a simulated
disk."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Final, NamedTuple

from octopi.simulation.faults.actions import BitFlip
from octopi.simulation.faults.damage import Damage

_SEGMENTS: Final = "logs/*/*/*.log"
_FILES: Final[dict[str, str]] = {
    "log": _SEGMENTS,
    "tail": _SEGMENTS,
    "unflushed": _SEGMENTS,
    "unheard": _SEGMENTS,
    "directory": _SEGMENTS,
    "index": "logs/*/*/*.index",
    "checkpoint": "logs/*/*/checkpoint",
    "ends": "replicas/*.ends",
    "replica": "replicas/*[0-9]",
    "table": "partitions",
    "identity": "identity",
}
_LAST_BYTES: Final = 4
_IN_RECORDS: Final = frozenset({"log", "tail", "unflushed", "unheard"})


class Harmed(NamedTuple):
    """What was done to the files."""

    done: str
    """In words; empty: there is no such file."""
    is_noticed: bool
    """Whether the broker finds out by itself when it starts."""


def harm_files(action: BitFlip | Damage, data_dir: Path, randomness: random.Random) -> Harmed:
    """Damage a file in *data_dir*, whose node is down."""
    if isinstance(action, BitFlip):
        action = Damage("flip", "log")
    found = [path for path in sorted(data_dir.glob(_FILES[action.part])) if path.stat().st_size]
    if not found:
        return Harmed("", is_noticed=True)
    path = randomness.choice(found)
    name = path.relative_to(data_dir)
    if action.part == "directory":
        shutil.rmtree(path.parent)
        return Harmed(f"{name.parent} removed", is_noticed=True)
    # Nobody knows from outside whether a bit is behind the log's checkpoint, where it is noticed.
    is_noticed = action.is_noticed and (action.part not in _IN_RECORDS or action.harm != "flip")
    size = path.stat().st_size
    match action.harm:
        case "flip":
            start = size - _LAST_BYTES if action.part in {"unflushed", "unheard"} else 0
            bit = randomness.randrange(8 * max(start, 0), 8 * size)
            content = bytearray(path.read_bytes())
            content[bit // 8] ^= 1 << bit % 8
            path.write_bytes(content)
            return Harmed(f"bit {bit} of {name} flipped", is_noticed)
        case "cut":
            kept = randomness.randrange(size)
            with path.open("r+b") as file:
                file.truncate(kept)
            return Harmed(f"{name} cut from {size} to {kept} bytes", is_noticed)
    path.unlink()
    return Harmed(f"{name} removed", is_noticed)
