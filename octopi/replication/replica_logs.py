"""Facts about all logs of one replica: their ends, whether they are intact, and whether internal
logs are flushed before they are acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping

from octopi.identifiers import NO_EPOCH, RING_LOGS, TOPICS_LOG, Epoch, TopicId, is_internal
from octopi.replication.log_state import LogState
from octopi.wire.messages import LogEnd


def are_sound(logs: Mapping[TopicId, LogState]) -> bool:
    """Whether the files of all logs hold what was noted to be on the device."""
    return all(log.sound for log in logs.values())


def are_intact(logs: Mapping[TopicId, LogState], *, flushed: bool) -> bool:
    """Whether the logs hold all that was ever acknowledged, when they are opened.  *flushed*: all
    of it had been flushed, or the machine has not lost its power.

    If all records are flushed before they are acknowledged, or if there is no log yet, nothing that
    counts was lost: the list of logs is durable before anything is appended to a new log."""
    return all(log.sound and (flushed or log.flush_before_ack) for log in logs.values())


def log_ends(logs: Mapping[TopicId, LogState], *, whole: bool) -> list[LogEnd]:
    """The end of each log.  *whole*: the logs hold all that was noted to be on the device."""
    return [
        LogEnd(
            topic_id,
            log.end,
            # Without *whole*, the records that were set aside may not all have been copied again.
            sound=log.sound and whole,
            held_end=log.held_end if log.held_end > log.end else 0,
        )
        for topic_id, log in logs.items()
    ]


def last_epoch(logs: Mapping[TopicId, LogState]) -> Epoch:
    """The newest epoch of which a log has records; 0 if there are none."""
    return max(
        (max(log.epochs.ends(log.end), default=NO_EPOCH) for log in logs.values()),
        default=NO_EPOCH,
    )


def follow_topics(logs: Mapping[TopicId, LogState], added: TopicId | None = None) -> list[TopicId]:
    """Set the `LogState.flush_before_ack` of internal logs: true if the log of any topic has it, or
    if there is no topic, else false; of `TOPICS_LOG` it is always true, so that no topic is lost
    by a power cut.  Return the internal logs for which that has changed.

    *added*: the only log that is new since the last call.  One of several topics that don't flush
    changes nothing, and then the others, of which there may be thousands, are not looked at.

    A mark survives what the messages survive that it is about.  Which topic an entry is about is
    not known here, so where one topic asks for the device, all entries wait for it.  Where none
    does, a mark would wait for the device while its messages don't.

    A replica counts as intact after a power failure if all of its logs are flushed before they are
    acknowledged (`are_intact`): the internal ones are where those of all topics are."""
    has_others = len(logs) > len(RING_LOGS) + 1
    if (
        added is not None
        and has_others
        and not (is_internal(added) or logs[added].flush_before_ack)
    ):
        return []
    topics = [log for name, log in logs.items() if not is_internal(name)]
    flush = not topics or any(log.flush_before_ack for log in topics)
    changed = [
        name
        for name, log in logs.items()
        if is_internal(name) and log.flush_before_ack != (flush or name == TOPICS_LOG)
    ]
    for name in changed:
        logs[name].flush_before_ack = flush or name == TOPICS_LOG
    return changed
