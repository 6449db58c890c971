"""What a proposer may propose, and what it may say afterwards: the rules without the messages."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import attrs

from octopi.wire.agreement import AcceptorId, AgreedValue, Ballot


@attrs.frozen
class NoChange:
    """A change does not apply to a value."""

    why: str


Change: TypeAlias = Callable[[AgreedValue], AgreedValue | NoChange]
"""Makes the next value of one that is not joint, or says why it doesn't.  It depends on nothing but
the value, because it may be called for several ones until one of its results is chosen."""


def confirm(value: AgreedValue) -> AgreedValue | NoChange:
    """Change nothing.  Its outcome tells the value that was chosen last when it was asked for, or a
    later one."""
    return NoChange("nothing was to be changed")


def move_acceptors(acceptors: Collection[AcceptorId]) -> Change:
    """A change of the acceptors to *acceptors*."""

    def change(value: AgreedValue) -> AgreedValue | NoChange:
        if set(acceptors) == set(value.acceptors):
            return NoChange("these are the acceptors")
        moved = value.moved_to(acceptors)
        why = moved.fault()
        return NoChange(why) if why else moved

    return change


Promise: TypeAlias = tuple[Ballot, AgreedValue | None]
"""The ballot in which an acceptor accepted its value, and the value."""


def newest(promises: Mapping[AcceptorId, Promise]) -> AgreedValue | None:
    """The value of the highest ballot that those who promised have accepted; None: they have
    accepted nothing."""
    known = [(ballot, value) for ballot, value in promises.values() if value is not None]
    return max(known, key=lambda one: one[0])[1] if known else None


def may_be_followed(value: AgreedValue, promised: Collection[AcceptorId]) -> bool:
    """Whether a proposer with the promises of *promised*, of which *value* is the `newest`, may
    propose what follows it."""
    return value.is_quorum(promised)


@attrs.frozen
class Proposal:
    """What to propose after a value was read."""

    value: AgreedValue
    asked: bool
    """Whether it is the answer to the change that was asked for; otherwise it has to be chosen
    first, and then the change is tried again."""
    no_change: NoChange | None = None
    """Why the change was not made; `value` is the one that was read."""


def proposal(read: AgreedValue, known: AgreedValue, change: Change) -> Proposal:
    """What a proposer that read *read* has to propose, if *known* is the newest value that it knows
    is chosen and *change* is asked for.

    A joint value that may not be chosen is proposed again, and nothing else.  What says that a
    change does not apply is proposed again, too.  Until it is chosen in the later ballot, the same
    change may still be chosen in an earlier one.
    """
    if read.is_joint:
        return Proposal(read.completed() if read == known else read, asked=False)
    made = change(read)
    if isinstance(made, NoChange):
        return Proposal(read, asked=True, no_change=made)
    assert made != read, "a change makes another value, or none"
    assert made.follows(read), "a change makes the next value"
    assert not made.fault(), made.fault()
    return Proposal(made, asked=True)
