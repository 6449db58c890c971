"""Has a log go by the altered options of its topic, without a restart."""

from __future__ import annotations

from octopi.environment import Environment
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.replica_driver import ReplicaDriver
from octopi.tracing import steps
from octopi.wire.messages import TopicRecord


async def alter_log(
    environment: Environment, replica: ReplicaDriver, log: LocalLog, topic: TopicRecord
) -> None:
    """Have *log* of *replica* go by the options of *topic*, durably.  Returns when they are in
    force.

    After a power failure, a replica counts as intact if its logs flush before they acknowledge.
    Before it is stored that this log does, all that the replica has acknowledged is flushed; and
    before anything is acknowledged that is not flushed, it is stored that this log doesn't.

    Raises:
      StorageError: if the disk fails; call this again.
    """
    if topic == log.topic:
        return
    options = topic.options
    altered = topic.topic, topic.topic_id, log.partition, options
    if (trace := environment.trace) is not None:
        trace(steps.T9Altering(*altered))
    if options.flush_before_ack:
        replica.require(log.topic_id, options.min_insync, flush=True)
        await replica.settled()
        for one in list(replica.logs.values()):
            await one.flush()
    await log.alter(topic)
    replica.require(log.topic_id, options.min_insync, flush=options.flush_before_ack)
    await replica.settled()
    if trace is not None:
        trace(steps.T9Altered(*altered))
