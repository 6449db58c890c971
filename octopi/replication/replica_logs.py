"""What is true of the logs of one replica together: how far each goes, whether all are what they
were, and what those of the partition itself follow from those of its topics.
"""

from __future__ import annotations

from collections.abc import Mapping

from octopi.identifiers import NO_EPOCH, Epoch, TopicId, is_internal
from octopi.replication.log_state import LogState
from octopi.wire.messages import LogEnd


def are_sound(logs: Mapping[TopicId, LogState]) -> bool:
    """Whether the files of all logs hold what was noted to be on the device."""
    return all(log.sound for log in logs.values())


def are_intact(logs: Mapping[TopicId, LogState], *, flushed: bool) -> bool:
    """Whether the logs hold all that was ever acknowledged, as they are found.  *flushed*: all of
    it had been flushed, or the machine did not lose its power.

    Where all is flushed before it is acknowledged, or there is no log yet, nothing that counts was
    lost: a log is on the device before anything is appended to it."""
    return all(log.sound and (flushed or log.flush_before_ack) for log in logs.values())


def log_ends(logs: Mapping[TopicId, LogState], *, whole: bool) -> list[LogEnd]:
    """How far each log goes.  *whole*: nothing is missing of what was on the device."""
    return [
        LogEnd(
            topic_id,
            log.end,
            # What was set aside may be copied again only in part.
            sound=log.sound and whole,
            held_end=log.held_end if log.held_end > log.end else 0,
        )
        for topic_id, log in logs.items()
    ]


def last_epoch(logs: Mapping[TopicId, LogState]) -> Epoch:
    """The newest epoch of which there are records."""
    return max(
        (max(log.epochs.ends(log.end), default=NO_EPOCH) for log in logs.values()),
        default=NO_EPOCH,
    )


def follow_topics(logs: Mapping[TopicId, LogState]) -> list[TopicId]:
    """Have internal logs flushed before they are acknowledged exactly where the logs of all topics
    are; return those for which that has changed.

    A replica counts as intact after a power failure if all of its logs are flushed before they are
    acknowledged.  If an internal log never were, every power failure would cost a replica that
    lost nothing of its topics; if it always were, a mark would wait for the device where
    the messages that it is about don't."""
    flush = all(log.flush_before_ack for name, log in logs.items() if not is_internal(name))
    changed = [
        name for name, log in logs.items() if is_internal(name) and log.flush_before_ack != flush
    ]
    for name in changed:
        logs[name].flush_before_ack = flush
    return changed
