"""Effects of a replica that failed on its disk and must be done again before anything else.

The machine counts these effects as done, so all later effects wait for them.
"""

from __future__ import annotations

from typing import Final

from octopi.identifiers import TopicId
from octopi.replication.effects import (
    OnLog,
    PartitionEffect,
    PublishHighwater,
    ReplicaState,
    Restart,
    SetAside,
    StoreEpochs,
    StoreState,
    SyncLogs,
    ToRegister,
    Truncate,
)
from octopi.wire.messages import AcceptEpoch

_NOT_RETRIED: Final = 4
"""The place in the order of effects that are not done again."""


class EffectRetries:
    """The failed effects of one replica, at most one of each kind and log."""

    def __init__(self) -> None:
        self.effects: dict[object, PartitionEffect] = {}
        """The failed effects by key, the newest last."""
        self._left_out = False
        """Whether an effect was dropped that the session with the leader depends on."""

    def add(self, effect: PartitionEffect) -> bool:
        """Have *effect* done again; return whether it is the first failed one of its kind."""
        key = _key(effect)
        is_first = self.effects.pop(key, None) is None
        self.effects[key] = effect
        return is_first

    def add_following(self, effect: PartitionEffect) -> None:
        """Have *effect*, which came after one that failed, done again if it must be.  The others
        are dropped: a new session with the leader produces them again."""
        if _order(effect) < _NOT_RETRIED:
            self.add(effect)
        else:
            self._left_out = True

    def done(self, effect: PartitionEffect) -> bool:
        """Note that *effect* is done; return whether a new session with the leader has to begin,
        because *effect* was the last failed one and others were dropped."""
        self.effects.pop(_key(effect), None)
        if self.effects or not self._left_out:
            return False
        self._left_out = False
        return True

    def change(self, topic_id: TopicId) -> bool:
        """Whether any of them changes the log."""
        return any(isinstance(key, tuple) and key[0] == topic_id for key in self.effects)

    def in_order(self, state: ReplicaState) -> list[PartitionEffect]:
        """The effects to do again, first to last.  *state* is the state that the replica has to
        store now.

        The state describes the logs, so it is stored after the effects on them.
        """
        effects = [
            StoreState(state) if isinstance(effect, StoreState) else effect
            for effect in self.effects.values()
        ]
        return sorted(effects, key=_order)


def _key(effect: PartitionEffect) -> object:
    """The key of *effect*.  Of two effects with the same key only the newer is done again."""
    match effect:
        case OnLog(topic_id, on_log):
            return topic_id, type(on_log)
        case ToRegister(message):
            return type(message)
        case _:
            return type(effect)


def _order(effect: PartitionEffect) -> int:
    """The place of *effect* among the effects that are done again."""
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
            return _NOT_RETRIED  # a timer or a new session asks for it again
