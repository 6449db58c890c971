"""Counts what the machine of one partition had done, for metrics.

The machine is not asked, and knows nothing of it: entries are counted when they are committed, and
refusals when they are told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from octopi.errors import Status
from octopi.identifiers import PartitionId, SubscriptionId, TopicId
from octopi.metrics.labelled_counter import LabelledCounter, Labels
from octopi.metrics.subscription_counts import SubscriptionCounts
from octopi.model import QUEUE_MODES
from octopi.subscriptions.effects import (
    AppendState,
    DealMessages,
    Effect,
    TellDetached,
    TellRefused,
)
from octopi.subscriptions.entries import AssignmentPhase, LostSpan, MarkEntry, mark_key
from octopi.subscriptions.partition_subscriptions import (
    SubscriptionIdentity,
)

Name: TypeAlias = tuple[str, str]
"""The topic and the name of a subscription."""


class EffectCounter:
    """The counts of one leadership; its series end with it."""

    def __init__(self, counts: SubscriptionCounts, partition: PartitionId) -> None:
        self._counts = counts
        self._partition = str(partition)
        self._series: dict[Name, dict[LabelledCounter, Labels]] = {}
        """Those of each subscription that this leadership began."""
        self._names: dict[SubscriptionId, Name] = {}
        self._lost: dict[str, LostSpan] = {}
        """What is counted as lost and not passed over yet, by the key of the mark."""

    def loaded(self, marks: Mapping[tuple[SubscriptionId, TopicId], MarkEntry]) -> None:
        """The leadership begins with *marks*: what they have lost was counted before."""
        for (sid, topic_id), entry in marks.items():
            if entry.lost is not None:
                self._lost[mark_key(sid, topic_id)] = entry.lost

    def committed(
        self,
        state: AppendState,
        identity_of: Callable[[SubscriptionId], SubscriptionIdentity | None],
    ) -> None:
        """An entry is committed.  *identity_of* says which subscription an id stands for."""
        kind, sid_text, *_ = state.key.split("/")
        sid, value = SubscriptionId(sid_text), state.value
        if value is None:
            if kind in "sk":
                self._lost.pop(state.key, None)
                self._forget(self._names.pop(sid, None))
        elif kind == "k":
            self._mark_stored(sid, state.key, value)
        elif kind == "a" and value.get("phase") == AssignmentPhase.ASSIGNED:
            self._log_given(sid, identity_of(sid))

    def _log_given(self, sid: SubscriptionId, found: SubscriptionIdentity | None) -> None:
        if found is not None:
            name = self._names[sid] = found.topic, found.name
            self._count(self._counts.rebalances, name, name)

    def _mark_stored(self, sid: SubscriptionId, key: str, value: Mapping[str, Any]) -> None:
        name = self._names[sid] = value["topic"], value["name"]
        labels = (*name, self._partition)
        self._count(self._counts.marks_stored, name, labels)
        rares = [self._counts.fenced, self._counts.lost_bytes]
        if value.get("mode") in QUEUE_MODES:
            rares.append(self._counts.redelivered)
        for rare in rares:
            self._count(rare, name, labels, 0)  # only growth from a first value is seen
        before = self._lost.pop(key, None)
        if (lost := value.get("lost")) is None:
            return
        span = self._lost[key] = LostSpan(*lost)
        if size_bytes := span.end - span.begin - _common_bytes(span, before):
            self._count(self._counts.lost_bytes, name, labels, size_bytes)

    def told(self, effect: Effect, topic: str, name: str | None) -> None:
        """A member, or who wants to be one, of the subscription *name* is told something; None:
        of one that isn't known here."""
        if name is None:
            return
        labels = (topic, name, self._partition)
        match effect:
            case TellDetached(status=Status.MEMBER_FENCED):
                self._count(self._counts.fenced, (topic, name), labels)
            case TellRefused(status=Status.MEMBER_FENCED):
                self._count(self._counts.fenced, (topic, name), labels)
            case DealMessages() if again := sum(one.attempt > 1 for one in effect.messages):
                self._count(self._counts.redelivered, (topic, name), labels, again)

    def ended(self) -> None:
        """The leadership is over."""
        for name in list(self._series):
            self._forget(name)

    def _count(self, counter: LabelledCounter, name: Name, labels: Labels, amount: int = 1) -> None:
        if counter.add(labels, amount):
            self._series.setdefault(name, {})[counter] = labels

    def _forget(self, name: Name | None) -> None:
        if name is not None:
            for counter, labels in self._series.pop(name, {}).items():
                counter.forget(labels)


def _common_bytes(one: LostSpan, other: LostSpan | None) -> int:
    """How much both have."""
    if other is None:
        return 0
    return max(0, min(one.end, other.end) - max(one.begin, other.begin))
