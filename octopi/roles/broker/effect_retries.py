"""What a replica has yet to do on its disk: effects of its machine that failed, done again first.

The machine believes that they are done, so whatever comes next has to wait for them.
"""

from __future__ import annotations

from typing import Final

from octopi.replication.effects import (
    OnLog,
    PartitionEffect,
    PublishHighwater,
    Restart,
    SetAside,
    StoreEpochs,
    StoreState,
    SyncLogs,
    ToRegister,
    Truncate,
)
from octopi.wire.messages import AcceptEpoch

NO_DEBT: Final = 4
"""The rank of effects that need not be done again."""


def debt_of(effect: PartitionEffect) -> object:
    """What makes two effects one debt."""
    match effect:
        case OnLog(topic_id, on_log):
            return topic_id, type(on_log)
        case ToRegister(message):
            return type(message)
        case _:
            return type(effect)


def rank_of(effect: PartitionEffect) -> int:
    """The order of debts.  What is none is asked for again, by a timer or in a new session."""
    match effect:
        case OnLog(_, StoreEpochs() | Truncate() | SetAside() | Restart()):
            return 0
        case SyncLogs():
            return 1
        case StoreState():
            return 2
        case OnLog(_, PublishHighwater()) | ToRegister(AcceptEpoch()):
            return 3
        case _:
            return NO_DEBT
