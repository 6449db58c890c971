"""Which log a trace step is about."""

from __future__ import annotations

from typing import TypeAlias

from octopi.identifiers import Epoch, PartitionId
from octopi.roles.broker.local_log import LocalLog

LogFields: TypeAlias = tuple[str, str, PartitionId, Epoch]


def log_fields(log: LocalLog, epoch: Epoch) -> LogFields:
    """Which log a step is about, and in which epoch; see `octopi.tracing.common.ReplicaLogStep`."""
    return log.topic.topic, log.topic_id, log.partition, epoch
