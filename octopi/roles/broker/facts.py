"""What the steps of a broker say of a log, a batch, a commit: for `Environment.trace` alone.

Names are those of `octopi.tracing.steps`.  Nothing here is called while nobody observes.
"""

from __future__ import annotations

from typing import Any

from octopi.record import Scan
from octopi.replication.partition_leader import PartitionLeader
from octopi.roles.broker.broker_log import BrokerLog
from octopi.wire.messages import Acknowledge, Follow, Followed

Facts = dict[str, Any]


def of_log(log: BrokerLog, epoch: int) -> Facts:
    """Which log, and the epoch in which something is done to it."""
    return {
        "topic": log.topic.topic,
        "topic_id": log.topic_id,
        "partition": log.partition,
        "epoch": epoch,
    }


def of_batch(found: Scan) -> Facts:
    """Which batch, so that it is known again wherever it comes by."""
    run = found.runs[0] if found.runs else None
    return {
        "producer": run and run.producer_id,
        "producer_epoch": run and run.producer_epoch,
        "sequence": run and run.first_sequence,
        "count": found.count,
    }


def of_set(leader: PartitionLeader | None) -> Facts:
    """What a commit needs: the in-sync set, and the one that may follow it."""
    if leader is None:
        return {"in_sync": [], "version": 0, "proposed": None}
    return {
        "in_sync": sorted(leader.in_sync),
        "version": leader.version,
        "proposed": leader.pending and leader.pending.in_sync,
    }


def of_message(log: BrokerLog, message: Follow | Followed | Acknowledge) -> Facts:
    """What a message of a follower's stream says about *log*."""
    said = of_log(log, message.epoch) | {"attempt": message.attempt}
    match message:
        case Follow():
            rows = [(one.epoch, one.start) for one in message.epochs]
            return said | {"epochs": rows, "log_end": message.log_end}
        case Followed():
            return said | {"keep": message.keep, "begin": message.begin}
        case Acknowledge():
            return said | {"end": message.end}
