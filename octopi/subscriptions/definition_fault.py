"""What no subscription can be."""

from __future__ import annotations

from octopi.errors import Status
from octopi.identifiers import PartitionId, consumer_name_fault
from octopi.limits import (
    PARTITIONS_PER_TOPIC_MAX,
    QUEUE_PARTITIONS_MAX,
    SUBSCRIPTIONS_PER_PARTITION_MAX,
)
from octopi.model import QUEUE_MODES, SubscriptionDefinition
from octopi.subscriptions.log_marks import unsupported
from octopi.wire.codec import fault_in


def definition_fault(
    wanted: SubscriptionDefinition, create: str, partition: PartitionId, count: int
) -> tuple[Status, str] | None:
    """Why there can't be such a subscription at the coordinator in *partition*, which has *count*
    of them; None: there can."""
    if create not in {"create", "create_or_attach"}:
        return Status.INVALID_OPTION, "create is create, attach or create_or_attach"
    fault = consumer_name_fault(wanted.name) or wanted.options.fault(wanted.mode)
    if fault := fault or unsupported(wanted.mode) or fault_in(wanted):
        return Status.INVALID_OPTION, fault
    logs = wanted.partitions
    if not logs or len(set(logs)) < len(logs) or len(logs) > PARTITIONS_PER_TOPIC_MAX:
        return Status.INVALID_OPTION, f"the topic can't have the partitions {logs[:20]}"
    if wanted.mode in QUEUE_MODES and len(logs) > QUEUE_PARTITIONS_MAX:
        reason = f"mode {wanted.mode} is for topics of at most {QUEUE_PARTITIONS_MAX} partitions"
        return Status.INVALID_OPTION, reason
    if logs[0] != partition:
        reason = f"subscriptions of this topic are kept in partition {logs[0]}, its first one"
        return Status.UNKNOWN_PARTITION, reason
    if count >= SUBSCRIPTIONS_PER_PARTITION_MAX:
        reason = f"a partition has at most {SUBSCRIPTIONS_PER_PARTITION_MAX} subscriptions"
        return Status.TOO_MANY, reason
    return None
