"""What nodes write to their logs that no fault excuses: exceptions, and errors.

An exception that a node logs is a fault of its code whatever fails around it.  An error
without one is a complaint about the world; it is excused where the world did fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from octopi.identifiers import BrokerId
from octopi.roles.broker.replica_driver import LEADER_LACKS
from octopi.roles.register.admissions import CONFLICT
from octopi.roles.register.startup_recovery import JOURNAL_LACKS
from octopi.simulation.kernel.host import ProcessLife
from octopi.simulation.node_logs import taken_logs, traceback_of

IsExcused = Callable[[str, str, Mapping[str, Any]], bool]
"""Whether a host may log an error: its name, the message, and the fields of the message."""


def comes_of_older_disks(
    message: str, facts: Mapping[str, Any], brokers: Collection[BrokerId]
) -> bool:
    """Whether an error is no more than the truth about *brokers*, whose disks were put back as they
    were before.  *facts*: the fields of the message."""
    if message == CONFLICT:
        return facts["broker"] in brokers  # it brings a topic back that was deleted and made again
    # It repeats a deleted topic; or it leads, can't know what it lost, and a follower keeps that.
    return message in {JOURNAL_LACKS, LEADER_LACKS} and bool(brokers)


_PLAIN_FIELDS: Final = frozenset(
    [*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime"]
)


@contextmanager
def listening(is_excused: IsExcused, complain: Callable[[str], None]) -> Iterator[None]:
    """Within the block, pass to *complain* what hosts complain of that *is_excused* doesn't excuse,
    and show nothing of the log."""

    def take(life: ProcessLife | None, record: logging.LogRecord) -> None:
        if life is not None and life.is_over:
            return  # nobody reads the log of a process that is gone
        host = life.host.name if life is not None else ""
        if trace := traceback_of(record):
            complain(f"{host}: {record.getMessage()}: {trace}")
            return
        facts = {name: value for name, value in vars(record).items() if name not in _PLAIN_FIELDS}
        if not is_excused(host, record.getMessage(), facts):
            complain(f"{host}: {record.getMessage()} {facts}")

    with taken_logs(take, errors_alone=True):
        yield
