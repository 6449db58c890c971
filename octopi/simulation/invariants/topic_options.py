"""Checks that topics are altered as decided, and says which options a replica has to go by.

======================= ================================================================
rule                    broken when
======================= ================================================================
options-undecided       the register tells a broker options of a topic that are not on its
                        device
options-back            the register tells a broker older options than the broker has confirmed
options-behind          everything is healed, and a replica's disk has other options of its
                        topic than the newest
======================= ================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from octopi.errors import StorageError
from octopi.identifiers import BrokerId
from octopi.model import TopicOptions, TopicRecord
from octopi.roles.broker.replica_ends import topic_of
from octopi.simulation.cluster import DATA_DIRECTORY, WIPE, SimulatedCluster
from octopi.simulation.disk.log_bytes import ReplicaBytes
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.step_handlers import StepHandlers
from octopi.tracing import steps


class OptionsInForce:
    """The options that brokers have confirmed."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._confirmed: dict[tuple[str, str], tuple[int, int]] = {}
        """Host and topic id -> the newest alteration that the host has confirmed."""
        self.handlers = StepHandlers()
        self.handlers.on(self._note, steps.T2Confirmed)
        self.handlers.on_word(self._forget, WIPE)

    def _note(self, event: StepEvent[steps.T2Confirmed]) -> None:
        host = self._cluster.host_of(event.step.broker)
        for topic in event.step.topics:
            key = host, topic.topic_id
            self._confirmed[key] = max(topic.alteration, self._confirmed.get(key, (0, 0)))

    def _forget(self, event: Event) -> None:
        for key in [one for one in self._confirmed if one[0] == event.host]:
            del self._confirmed[key]

    def confirmed(self, host: str, topic_id: str) -> tuple[int, int]:
        """The newest alteration of a topic that *host* has confirmed (`TopicRecord.alteration`)."""
        return self._confirmed.get((host, topic_id), (0, 0))

    def of(self, host: str, topic: TopicRecord) -> list[TopicOptions]:
        """The options that *host* may go by: those that it has confirmed, and newer ones, of which
        it may have heard."""
        confirmed = self.confirmed(host, topic.topic_id)
        decided = self._cluster.decided.options.get(topic.topic_id, {})
        found = [options for alteration, options in decided.items() if alteration >= confirmed]
        return found or [topic.options]

    def of_broker(self, broker: BrokerId, topic: TopicRecord) -> list[TopicOptions]:
        """The options that *broker* may go by."""
        return self.of(self._cluster.host_of(broker), topic)


class TopicOptionRules(SystemInvariants):
    """Compares what brokers are told, and what they keep, with the register's decisions."""

    promises: ClassVar[Mapping[str, str]] = {
        "options-undecided": (
            "the register tells brokers only options of a topic that are on its device"
        ),
        "options-back": "no broker is told older options of a topic than it has confirmed",
        "options-behind": (
            "when everything is healed, each replica has the newest options of its topic on its "
            "disk"
        ),
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self._in_force = OptionsInForce(cluster)
        self.handlers.add(self._in_force.handlers)
        self.handlers.on(self._check_told, steps.T2Telling)

    def _check_told(self, event: StepEvent[steps.T2Telling]) -> None:
        for told in event.step.topics:
            known = self.cluster.decided.state.topic(told.topic)
            is_known = known is not None and known.topic_id == told.topic_id
            if known is not None and is_known and known.alteration < told.alteration:
                text = f"broker {event.step.broker} is told {told.options} of {told.topic}, which "
                text += "are not on the register's device"
                self.break_rule("options-undecided", text, event)
            host = self.cluster.host_of(event.step.broker)
            confirmed = self._in_force.confirmed(host, told.topic_id)
            if told.alteration < confirmed:
                text = f"broker {event.step.broker} has confirmed alteration {confirmed} of "
                text += f"{told.topic}, and is told alteration {told.alteration}"
                self.break_rule("options-back", text, event)

    def at_rest(self, event: Event) -> None:
        state = self.cluster.decided.state
        for topic in state.topics_after("", state.topic_count):
            for partition in topic.partitions:
                for broker in state.partitions[partition].replicas:
                    host = self.cluster.host_of(broker)
                    if not host or not self.cluster.nodes[host].host.is_up:
                        continue
                    disk = self.cluster.nodes[host].host.disk
                    log = ReplicaBytes(disk, DATA_DIRECTORY, topic.topic, partition)
                    kept = _topic_in(log.checkpoint())
                    if kept is None or kept.topic_id != topic.topic_id:
                        continue
                    if kept.options != topic.options:
                        text = f"{host} keeps for {topic.topic}/{partition} {kept.options}; the "
                        text += f"newest options are {topic.options}"
                        self.break_rule("options-behind", text, event)


def _topic_in(checkpoint: Mapping[str, Any] | None) -> TopicRecord | None:
    try:
        return topic_of(checkpoint["topic"]) if checkpoint is not None else None
    except StorageError:
        return None  # the file was damaged, and other rules say so
