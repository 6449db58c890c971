"""To which log of the output a pipe sends what comes from one log of its input.

The pipe's place is in the output (`octopi.clients.piping.pipe_log`), so each owner has to send to
the same log.  The results of the input's first log go to the output's first log, and so on in turn,
by the lists with which both topics were created: what a log of the input got later goes where the
log goes whose keys it has, so a key's results stay in order, and partitions that the output got
later get none, as then results would go elsewhere from one moment on.  If the output was moved, its
newest log is written, and the sealed ones before tell the place until that one has a record of the
pipe.

Pure.
"""

from __future__ import annotations

from octopi.identifiers import PartitionId
from octopi.wire.messages import TopicInfo


def targets_of(into: TopicInfo, index: int) -> list[PartitionId]:
    """The logs of the output for the log at *index* of the input's first list: the one that takes
    messages, then sealed ones, the newest first."""
    lists = _lists(into)
    place = index % len(lists[0])
    return list(dict.fromkeys(partitions[place] for partitions in reversed(lists)))


def _lists(info: TopicInfo) -> list[list[PartitionId]]:
    """The lists of partitions of a topic, the oldest first."""
    return [one.partitions for one in info.generations] or [
        [PartitionId(one.partition) for one in info.partitions]
    ]
