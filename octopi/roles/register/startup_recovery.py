"""What a register finds of its own past: in its journal, and with brokers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from octopi.coordination.admission import Admission
from octopi.coordination.controller import Controller
from octopi.coordination.journal_entries import Entry
from octopi.errors import StorageError
from octopi.limits import TOLD_MAX
from octopi.logger import get_logger
from octopi.wire.messages import Join

_log = get_logger(__name__)

JOURNAL_LACKS: Final = "the journal lacks what this register decided"
"""What a register writes to its log when a broker repeats a decision of its own that it forgot."""

_PROOFS_TOLD_MAX = 10


@attrs.frozen
class FormerCluster:
    """The cluster that brokers belong to which come to a register without a journal."""

    cluster: str
    """Empty: there was none."""
    generation: int
    """The greatest of any register that they joined; 0 if there was none."""


def former_cluster(came: Iterable[Join]) -> FormerCluster:
    """What those brokers tell that *came* first.  Nothing can be checked yet."""
    joins = list(came)
    cluster = next((one.cluster for one in joins if one.cluster), "")
    lives = [one.register for one in joins if one.register and one.cluster == cluster]
    # A register counts on from there, for as long as there are numbers.
    generations = [one.generation for one in lives if one.generation <= TOLD_MAX]
    return FormerCluster(cluster, max(generations, default=1) if cluster else 0)


def replay(controller: Controller, entries: list[Entry], directory: str) -> None:
    """Make the state of what the journal says.

    Raises:
      StorageError: if no register decided that.
    """
    advice = (
        "start the register with an empty --data-dir, and it learns from brokers what is theirs; "
        "keep this one for an examination"
    )
    for number, entry in enumerate(entries):
        try:
            controller.apply(entry)
        except (AssertionError, KeyError) as error:
            raise StorageError(
                f"the journal in {directory} contradicts itself: entry {number}, a "
                f"{type(entry).__name__}, does not follow from those before ({error!r}); {advice}"
            ) from error
    if why := controller.state.fault():
        raise StorageError(
            f"the journal in {directory} says what no register decides: {why}; {advice}"
        )
    for topic_id in sorted(controller.state.unfit_topics):
        _log.error(
            "a topic has no legal name or id, and no broker is told of it",
            topic_id=topic_id,
            next=f"octopi-node topics delete --id {topic_id}",
        )


def tell_older_copy(admission: Admission) -> None:
    """Say that the journal lacks decisions, if a broker has proven it.

    A topic alone does not prove that the journal is older: once all brokers have removed a deleted
    topic, nobody remembers that there was one."""
    if admission.proofs:
        _log.error(
            JOURNAL_LACKS,
            why="a broker has it under the register's seal: either the journal is an older copy, "
            "or the broker's disk is, and the topics that it repeats had been deleted",
            learned_from=admission.broker,
            lacks=admission.proofs[:_PROOFS_TOLD_MAX],
            count=len(admission.proofs),
        )
