"""Finds errors in the logs of nodes that no injected fault excuses.

An exception in a node's log is always a bug of the node.  An error without an exception is excused
if an injected fault explains it.
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
    """Whether an error is explained by *brokers*, whose disks were replaced by older copies.
    *facts*: the fields of the message."""
    if message == CONFLICT:
        return facts["broker"] in brokers  # it reports a topic that was deleted and made again
    # Such a broker reports a deleted topic; or it leads without knowing that it has lost records,
    # and a follower doesn't cut these.
    return message in {JOURNAL_LACKS, LEADER_LACKS} and bool(brokers)


_PLAIN_FIELDS: Final = frozenset(
    [*vars(logging.LogRecord("", 0, "", 0, "", (), None)), "message", "asctime"]
)


@contextmanager
def listening(is_excused: IsExcused, complain: Callable[[str], None]) -> Iterator[None]:
    """Within the block, pass to *complain* each error in the log of a host unless *is_excused* is
    true for it.  Nothing of the log is printed."""

    def take(life: ProcessLife | None, record: logging.LogRecord) -> None:
        if life is not None and life.is_over:
            return  # the process has ended; what its tasks log while they end doesn't count
        host = life.host.name if life is not None else ""
        if trace := traceback_of(record):
            complain(f"{host}: {record.getMessage()}: {trace}")
            return
        facts = {name: value for name, value in vars(record).items() if name not in _PLAIN_FIELDS}
        if not is_excused(host, record.getMessage(), facts):
            complain(f"{host}: {record.getMessage()} {facts}")

    with taken_logs(take, errors_alone=True):
        yield
