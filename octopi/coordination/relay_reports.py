"""What a register that lost its disk learns again of relay sets and topics in memory.

Brokers keep what they were told, and members go on without a register, so the newest set that is
reported is the one in force, or one that was ordered after it.  It counts as not in force until its
sequencer says so; no further change is ordered before.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.journal_entries import Entry, RelaySetDecided, TopicCreated
from octopi.model import TopicRecord
from octopi.wire.messages import Inventory


def split_reports(
    state: ClusterState, inventory: list[Inventory]
) -> tuple[list[Inventory], list[Entry]]:
    """The *inventory* of a broker without what is about topics in memory, and the entries that a
    register with *state* takes over of that: only if it began with an empty journal."""
    logs = [
        attrs.evolve(one, topics=[topic for topic in one.topics if not topic.is_relay])
        for one in inventory
    ]
    if not state.was_taken_over:
        return logs, []
    entries: list[Entry] = []
    sets = dict(state.relay_sets)
    for record in (one for page in inventory for one in page.relay_sets):
        known = sets.get(record.partition)
        if known is None or known.version < record.version:
            sets[record.partition] = attrs.evolve(record, in_force=False)
            entries.append(RelaySetDecided(sets[record.partition]))
    known_names: set[str] = set()
    for topic in _relayed(inventory):
        is_new = state.topic(topic.topic) is None and topic.topic not in known_names
        if is_new and topic.topic_id not in state.removals and topic.partitions[0] in sets:
            known_names.add(topic.topic)
            entries.append(TopicCreated(attrs.evolve(topic, seal="")))
    return logs, entries


def _relayed(inventory: Iterable[Inventory]) -> list[TopicRecord]:
    return [topic for page in inventory for topic in page.topics if topic.is_relay]
