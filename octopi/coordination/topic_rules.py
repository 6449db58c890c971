"""What whoever creates or alters a topic may ask for, in every kind of cluster."""

from __future__ import annotations

from collections.abc import Callable

from octopi.errors import RefusedError, Status
from octopi.identifiers import PartitionId
from octopi.limits import PARTITIONS_PER_TOPIC_MAX
from octopi.model import StreamDefinition, TopicKind, TopicOptions


def check_options(
    options: TopicOptions,
    stream: StreamDefinition | None = None,
    kind: str = TopicKind.LOG,
) -> None:
    """Check the options of a topic of that *kind*, and what it is as a stream.

    Raises:
      RefusedError: INVALID_OPTION.
    """
    if fault := options.fault_as(kind):
        raise RefusedError(fault, Status.INVALID_OPTION)
    if stream is not None and (fault := stream.fault()):
        raise RefusedError(fault, Status.INVALID_OPTION)


def chosen_partitions(
    count: int,
    partitions: list[PartitionId] | None,
    total: int,
    choose: Callable[[int], list[PartitionId]],
) -> list[PartitionId]:
    """The partitions of a new topic: *partitions* if they are given, otherwise *count* that
    *choose* chooses.  *total*: how many the cluster has.

    Raises:
      RefusedError: INVALID_OPTION.
    """
    if partitions is not None:
        if (
            not partitions
            or len(set(partitions)) < len(partitions)
            or not all(0 <= one < total for one in partitions)
        ):
            raise RefusedError(
                f"partitions are different numbers from 0 to {total - 1}", Status.INVALID_OPTION
            )
        return partitions
    most = min(total, PARTITIONS_PER_TOPIC_MAX)
    if not 1 <= count <= most:
        more = min(count, PARTITIONS_PER_TOPIC_MAX) - total
        advice = f"; run `octopi-node partitions add {more}` for more" if more > 0 else ""
        raise RefusedError(
            f"the cluster has {total} partitions, so a topic can have 1 to {most} of them, "
            f"not {count}{advice}",
            Status.INVALID_OPTION,
        )
    return choose(count)
