"""The kinds of faults that plans are drawn with, each with its own switch.

All kinds are on by default.  Switch a kind off while the code does not withstand its faults yet:
plans of `sim run` and `sim mutants` then leave it out; tokens and tests can still use it.
"""

from __future__ import annotations

from typing import Final

DAMAGE: Final = "damage"
"""While a node is down, one of its files is cut, removed or replaced by an older copy, or a bit of
it is flipped."""
STOPS: Final = "stops"
"""Nodes are asked to stop as often as they are killed; some are asked twice, and some are killed
while they stop."""
GONE: Final = "gone"
"""A node stops and is never started again."""
LINKS: Final = "links"
"""A single connection breaks, and no other."""
JOURNAL: Final = "journal"
"""The disk of a register that has lost its journal takes no entry, while brokers report to it."""
RENEWED: Final = "renewed"
"""A topic is deleted and made again under its name while a broker is away."""
FULL: Final = "full"
"""A disk is full while its node starts, and has space again before the node ends."""
POWER: Final = "power"
"""All machines of a partition lose their power, and with it what was not on their devices."""
LAST: Final = "last"
"""The last replica in sync is damaged, or its disk is lost: an operator orders which one leads."""
EVERY_DISK: Final = "every disk"
"""The disks of all replicas of a partition are lost: an operator has it begin again empty."""
ALONE: Final = "alone"
"""The register is down while producers look for leaders that have changed."""

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
"""Whether each kind is drawn."""


def is_drawn(kind: str) -> bool:
    """Whether plans are drawn with faults of *kind*."""
    return SWITCHES[kind]
