"""The first value of an instance."""

from __future__ import annotations

from collections.abc import Collection

from octopi.wire.agreement import AcceptorId, AgreedValue


def first_value(acceptors: Collection[AcceptorId], content: bytes) -> AgreedValue:
    """The value with which an instance begins.  It counts as chosen, so all nodes have to know the
    same one."""
    group = tuple(sorted(acceptors))
    return AgreedValue(0, group, group, content)
