"""Which generations topics have: what the controller decides about growing and moving them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from octopi.coordination.cluster_state import ClusterState
from octopi.coordination.consistent_hash import HashCircle
from octopi.coordination.decisions import GenerationDecision
from octopi.coordination.generations import (
    SealedLog,
    brought_into_force,
    cancelled,
    check_kind,
    in_force,
    proposed,
    sealing,
    under_way,
)
from octopi.coordination.journal_entries import Entry, PartitionDecided, TopicAltered
from octopi.coordination.topic_decisions import TopicDecisions
from octopi.errors import NotReadyError, RefusedError, Status, UnknownTopicError
from octopi.generation_record import GenerationState
from octopi.identifiers import PartitionId, TopicId, TopicName
from octopi.limits import PARTITIONS_PER_TOPIC_MAX
from octopi.model import TopicRecord


class GenerationDecisions:
    """Decides about the generations of the topics of one cluster."""

    def __init__(self, state: ClusterState, topics: TopicDecisions) -> None:
        self._state = state
        self._topics = topics

    def grow(self, name: str, count: int) -> GenerationDecision:
        """Have a topic get a generation of *count* partitions: those that it has, in their order,
        and new ones behind them.

        Raises:
          InvalidTopicError, UnknownTopicError, NotReadyError: see `TopicDecisions.require`.
          RefusedError: see `octopi.coordination.generations.proposed`; (retryable) NO_BROKER.
        """
        topic = self._topics.require(name)
        now = in_force(topic).partitions
        total = self._state.partition_count
        most = min(total, PARTITIONS_PER_TOPIC_MAX)
        check_kind(topic)
        if not len(now) < count <= most:
            more = min(count, PARTITIONS_PER_TOPIC_MAX) - total
            advice = f"; run `octopi-node partitions add {more}` for more" if more > 0 else ""
            raise RefusedError(
                f"topic {name} has {len(now)} partitions and the cluster {total}, so the topic can "
                f"grow to at most {most}, not to {count}{advice}",
                Status.INVALID_OPTION,
            )
        sealed = {one for old in topic.generations if old.sealed for one in old.partitions}
        around = HashCircle(total).partitions(TopicName(topic.topic), total)
        free = [one for one in around if one not in now and one not in sealed]
        new = free[: count - len(now)]
        if len(now) + len(new) < count:
            raise RefusedError(
                f"{len(sealed - {*now})} of the {total} partitions of the cluster have sealed logs "
                f"of topic {name}, so it can grow to at most {len(now) + len(new)}, not to {count}",
                Status.INVALID_OPTION,
            )
        return self._propose(topic, [*now, *new])

    def move(self, name: str, partition: PartitionId) -> GenerationDecision:
        """Have a topic of one partition get a generation on another *partition*.

        Raises:
          InvalidTopicError, UnknownTopicError, NotReadyError: see `TopicDecisions.require`.
          RefusedError: INVALID_OPTION, also if the topic has several partitions;
              UNKNOWN_PARTITION; see `octopi.coordination.generations.proposed`; (retryable)
              NO_BROKER.
        """
        topic = self._topics.require(name)
        if not 0 <= partition < self._state.partition_count:
            raise RefusedError(
                f"there is no partition {partition}: the cluster has those from 0 to "
                f"{self._state.partition_count - 1}",
                Status.UNKNOWN_PARTITION,
            )
        check_kind(topic)
        if (count := len(in_force(topic).partitions)) > 1:
            raise RefusedError(
                f"topic {name} has {count} partitions: only a topic of one is moved; use "
                "`octopi-node partitions move` to move a replica",
                Status.INVALID_OPTION,
            )
        return self._propose(topic, [partition])

    def _propose(self, topic: TopicRecord, partitions: Sequence[PartitionId]) -> GenerationDecision:
        record = proposed(topic, partitions)
        entries: list[Entry] = [PartitionDecided(one) for one in self._topics.place([*partitions])]
        return self._decided(record, entries)

    def advance(
        self,
        topic_id: TopicId,
        number: int,
        state: GenerationState,
        ends: Mapping[PartitionId, SealedLog],
    ) -> GenerationDecision:
        """Have generation *number* of a topic be in *state* from now on.  *ends*: of the logs of
        the generation in force, if the next one comes into force.

        Raises:
          UnknownTopicError: if there is no such topic any more.
          NotReadyError: if that generation is not under way (any more), or an end was reported in
              another epoch than the one in force.
        """
        topic = self._state.topic_of_id(topic_id)
        if topic is None:
            raise UnknownTopicError(f"there is no topic with id {topic_id}")
        newest = under_way(topic)
        if newest is None or newest.number != number:
            raise NotReadyError(f"generation {number} of topic {topic.topic} is not under way")
        match state:
            case GenerationState.SEALING:
                return self._decided(sealing(topic), [])
            case GenerationState.CANCELLED:
                return self._decided(cancelled(topic), [])
        for partition in in_force(topic).partitions:
            log = ends.get(partition)
            if log is None or log.epoch != self._state.partitions[partition].epoch:
                raise NotReadyError(f"the log of partition {partition} is not known to be sealed")
        return self._decided(
            brought_into_force(topic, {one: log.end for one, log in ends.items()}), []
        )

    def _decided(self, topic: TopicRecord, entries: list[Entry]) -> GenerationDecision:
        # A topic that was reported to a register without a journal may name any generation.
        generation = max(self._state.life.generation, topic.generation)
        topic = attrs.evolve(topic, generation=generation, version=topic.version + 1)
        return GenerationDecision(topic, [*entries, TopicAltered(topic)])
