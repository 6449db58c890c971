"""Waits for the places of faults, and takes back what faults did to a node."""

from __future__ import annotations

import errno

from octopi.simulation.cluster import Node
from octopi.simulation.disk.faults import DiskFault, Fail
from octopi.simulation.faults.actions import InjectedFault, When


class PendingFault:
    """A fault that waits until its place is reached for the n-th time."""

    def __init__(self, number: int, who: str, occurrence: int) -> None:
        self.number = number
        """The index of the fault."""
        self.who = who
        self.left = occurrence

    def comes(self, fits: bool) -> bool:
        """Count the place if it *fits*; return whether it is the awaited one."""
        self.left -= fits
        return fits and self.left == 0


def is_behind(fault: InjectedFault) -> bool:
    return not isinstance(fault.place, When) and fault.place.behind


def is_full(fault: DiskFault) -> bool:
    """Whether calls find no space and change nothing.  After a failed sync the content of the
    device is unknown, so that takes a restart."""
    how = fault.how
    is_of_space = isinstance(how, Fail) and how.error_number == errno.ENOSPC and not how.done
    return is_of_space and fault.operation in {
        "append",
        "open",
        "make_directory",
        "replace_file",
    }


def empty(node: Node) -> None:
    node.host.disk.capacity_bytes = None


def unprotect(node: Node) -> None:
    node.host.disk.read_only = False


def keep_time(node: Node) -> None:
    node.host.clock.set_rate(1.0)
