"""How a register restores its state at its start: from its journal, and from brokers."""

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
"""The log message when a broker reports a decision of this register that the journal lacks."""

_PROOFS_TOLD_MAX = 10


@attrs.frozen
class FormerCluster:
    """The cluster of the brokers that join a register which has no journal yet."""

    cluster: str
    """Empty: there was none."""
    generation: int
    """The highest generation of any register that they joined; 0 if there was no cluster."""


def former_cluster(came: Iterable[Join]) -> FormerCluster:
    """The former cluster as the brokers that *came* first report it.  None of it can be checked."""
    joins = list(came)
    cluster = next((one.cluster for one in joins if one.cluster), "")
    lives = [one.register for one in joins if one.register and one.cluster == cluster]
    # The register continues from the highest generation that has a successor.
    generations = [one.generation for one in lives if one.generation <= TOLD_MAX]
    return FormerCluster(cluster, max(generations, default=1) if cluster else 0)


def replay(controller: Controller, entries: list[Entry], directory: str) -> None:
    """Apply the *entries* of the journal to the controller.

    Raises:
      StorageError: if no register could have decided them.
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
    """Log that the journal lacks decisions, if a broker has proven it.

    A topic alone does not prove that the journal is an older copy: once all brokers have removed a
    deleted topic, the register forgets it, too."""
    if admission.proofs:
        _log.error(
            JOURNAL_LACKS,
            why="a broker has it under the register's seal: either the journal is an older copy, "
            "or the broker's disk is, and the topics that it repeats had been deleted",
            learned_from=admission.broker,
            lacks=admission.proofs[:_PROOFS_TOLD_MAX],
            count=len(admission.proofs),
        )
