"""What must hold for the values of one instance, written without the code that is tested.

The content of a value is the list of the operations that were made so far, so each value says from
which history it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from octopi.wire.agreement import AcceptorId, AgreedValue


def operations(value: AgreedValue) -> list[str]:
    """The operations in *value*, in their order."""
    return value.content.decode().split()


def with_operation(value: AgreedValue, name: str) -> AgreedValue:
    """The value after the operation *name*."""
    return value.with_content(" ".join([*operations(value), name]).encode())


def is_chosen(value: AgreedValue, accepted: Collection[AcceptorId]) -> bool:
    """Whether those that accepted *value* in one ballot are enough."""
    return all(
        2 * len(set(group) & set(accepted)) > len(group)
        for group in (value.acceptors, value.previous)
    )


def fault_in(chosen: Iterable[AgreedValue]) -> str:
    """Why the values *chosen* are not those of one history; empty if they are."""
    ordered = sorted(chosen, key=lambda one: one.change)
    for earlier, later in pairwise(ordered):
        before, after = operations(earlier), operations(later)
        if after[: len(before)] != before:
            return f"two histories are chosen: {before} and {after}"
        if earlier.change == later.change and earlier != later:
            return f"two values with the count {earlier.change} are chosen"
        if later.change == earlier.change + 1:
            kept = earlier.acceptors if earlier.is_joint else later.acceptors
            if later.previous != earlier.acceptors or later.acceptors != kept:
                return "the acceptors change without a joint value"
    return ""
