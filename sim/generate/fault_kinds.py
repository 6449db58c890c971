"""The kinds of faults that plans are drawn with, each with its own switch.

All kinds are on by default.  Switch a kind off while the code does not withstand its faults yet:
plans of `sim run` and `sim mutants` then leave it out; tokens and tests can still use it.
"""

from __future__ import annotations

from typing import Final

DAMAGE: Final = "damage"
"""A file of a node that is down is cut, flipped, missing, or an older copy of itself."""
STOPS: Final = "stops"
"""Nodes are asked to end as often as they are killed, twice, and killed while they end."""
GONE: Final = "gone"
"""A node ends and is never started again."""
LINKS: Final = "links"
"""A single connection breaks, and no other."""
JOURNAL: Final = "journal"
"""The register's disk takes no entry, while brokers tell a register without memory what was."""
RENEWED: Final = "renewed"
"""A topic is deleted and made again under its name, while a broker is away."""
FULL: Final = "full"
"""A disk is full while its node starts, and has space again before the node ends."""
POWER: Final = "power"
"""All copies lose what was not on their devices."""
LAST: Final = "last"
"""The last copy in sync is damaged, or its disk lost: an operator orders who leads."""
EVERY_DISK: Final = "every disk"
"""The disks of all replicas of a partition are lost: an operator has it begin again empty."""
ALONE: Final = "alone"
"""The register is away while producers look for leaders that changed meanwhile."""

SWITCHES: Final[dict[str, bool]] = {
    DAMAGE: True,
    STOPS: True,
    GONE: True,
    LINKS: True,
    JOURNAL: True,
    RENEWED: True,
    FULL: True,
    POWER: True,
    ALONE: True,
    LAST: True,
    EVERY_DISK: True,
}
"""Kind -> whether it is drawn."""


def is_drawn(kind: str) -> bool:
    """Whether plans are drawn with faults of *kind*."""
    return SWITCHES[kind]
