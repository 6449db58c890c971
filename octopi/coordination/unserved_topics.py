"""Topics that brokers hold records of and that the register doesn't serve.

There are three causes: another topic of the same name is in use, the register has deleted the topic
and lost that decision, or it never created the topic.  The broker keeps the records.  It reports
all topics that it holds whenever it joins, so the journal need not have them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import BrokerRemoved, Entry, OlderTopicFound
from octopi.identifiers import BrokerId
from octopi.limits import UNSERVED_TOPICS_MAX
from octopi.wire.messages import TopicRecord, UnservedTopic


class UnservedTopics:
    """The unserved topics that the brokers of a cluster reported when they last joined."""

    def __init__(self, state: ClusterState) -> None:
        """*state* is the caller's; it says which topics are served."""
        self._state = state
        self._reported: dict[BrokerId, list[TopicRecord]] = {}
        """By broker, at most `UNSERVED_TOPICS_MAX` of each."""

    def reported(self, broker: BrokerId, topics: Iterable[TopicRecord]) -> None:
        """*broker* has joined, and *topics* are those it holds that the register doesn't serve."""
        self._reported[broker] = list(topics)[:UNSERVED_TOPICS_MAX]
        if not self._reported[broker]:
            del self._reported[broker]

    def apply(self, entry: Entry) -> None:
        """Take note of *entry*, which is in the journal."""
        match entry:
            case OlderTopicFound(_, topic_id, broker):
                topics = self._reported.get(broker, [])
                self.reported(broker, [one for one in topics if one.topic_id != topic_id])
            case BrokerRemoved(broker):
                self._reported.pop(broker, None)

    def found(self, covers: Callable[[str], bool] = lambda name: True) -> list[UnservedTopic]:
        """The topics that are still not served and for whose names *covers* returns true, by
        broker; at most `UNSERVED_TOPICS_MAX`."""
        found: list[UnservedTopic] = []
        for broker, topics in sorted(self._reported.items()):
            for one in topics:
                in_use = self._state.topic(one.topic)
                used_id = "" if in_use is None else in_use.topic_id
                if used_id != one.topic_id and covers(one.topic):
                    found.append(UnservedTopic(one.topic, one.topic_id, broker, used_id))
        return found[:UNSERVED_TOPICS_MAX]

    def of_id(self, topic_id: str) -> TopicRecord | None:
        """The topic of that id that some broker holds and that isn't served."""
        return next(iter(self._holders(topic_id).values()), None)

    def deletion(self, topic_id: str) -> list[Entry]:
        """Entries by which all brokers that reported that topic remove their records of it."""
        return [
            OlderTopicFound(topic.topic, topic_id, broker)
            for broker, topic in sorted(self._holders(topic_id).items())
        ]

    def _holders(self, topic_id: str) -> dict[BrokerId, TopicRecord]:
        if self._state.topic_of_id(topic_id) is not None:
            return {}
        return {
            broker: topic
            for broker, topics in self._reported.items()
            for topic in topics
            if topic.topic_id == topic_id
        }
