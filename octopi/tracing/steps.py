"""All steps of all systems.

Where a step makes something durable or lets another side see it, its code ends in a letter for
each edge, in the order of time: nothing of it has happened at the first edge, all of it at
the last.  An observer that raises at an edge stops the node there: what follows from the
step is neither on the disk nor on its way.  A message counts as sent when it is handed to
its connection, which is what "tells" and "told" mean here.

Who does the step is known from the environment that it was observed in, so the fields speak of
others:

================================= =====================================================
field                             meaning
================================= =====================================================
topic, topic_id, partition        the log; without topic all logs of the partition
epoch, version                    of the record of the partition that is meant; epoch 0:
                                  the replica plays no role
offset, end                       where records begin and end (bytes, exclusive)
log_end, flushed_end              end of this node's log, in the page cache and on the
                                  device
log_start, highwater              of this node's log
producer, producer_epoch,         the batch: id (bytes), epoch and sequence of its first
sequence, count                   record, number of records.  Version 1 records have no
                                  producer: None
records_epoch                     which epoch wrote the records
in_sync, proposed                 broker ids in order; the set in force, and one that the
                                  register was asked for (None: none), whose members have
                                  to hold what is committed, too
follower, leader, broker          the other side
record, records, topics, entries  what was decided, as objects
                                  (`octopi.wire.messages`, `octopi.coordination.journal_entries`)
disk_trouble, troubles            why a broker's disk takes nothing (empty: it does), and what is
                                  new about its replicas (`octopi.wire.messages`)
wish                              what a change of leadership should bring about; None:
                                  the leader is gone
keep, begin                       the logs agree below, and records come from
ends, first, more                 of the logs of an acceptance, and which part of it this is
                                  (`octopi.wire.membership.AcceptEpoch`)
folder                            where the files of a retired replica are now, on its disk
losses                            what is known to be lost by a decision, for each record
                                  that accepts a loss
epochs                            which epoch began where, in order (epoch, offset)
sid, name, state                  of a durable subscription (`octopi.model`)
key, value, states                of the log ``~subscriptions`` (`octopi.subscriptions.entries`);
                                  value None: the key is removed
log, member, claim, static        a partition of the subscription's topic, who has it, and by which
                                  assignment
logs, revoked                     pairs of log and claim that a member is told, and whether it is to
                                  release them
mark, offset, acknowledge         below which all is processed; as a member sends it, and the number
                                  that is to be answered when it is committed
lost_from, lost_to, reset_to      what a member is told that its log has no more; where an operator
                                  sets the mark
status, reason, why               of a refusal: `octopi.errors.Status` and words
promised, sync_flag, intact,      see `octopi.replication.effects.ReplicaState`
whole, log_epoch, ends
================================= =====================================================
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from octopi.tracing import (
    client,
    durability,
    election,
    join,
    produce,
    register,
    subscriptions,
    topics,
)
from octopi.tracing.client import *  # noqa: F403
from octopi.tracing.durability import *  # noqa: F403
from octopi.tracing.election import *  # noqa: F403
from octopi.tracing.join import *  # noqa: F403
from octopi.tracing.produce import *  # noqa: F403
from octopi.tracing.produce import P9Refused, P9Refusing
from octopi.tracing.register import *  # noqa: F403
from octopi.tracing.step import Step
from octopi.tracing.subscriptions import *  # noqa: F403
from octopi.tracing.topics import *  # noqa: F403

_SYSTEMS: Final = (
    produce,
    durability,
    election,
    join,
    register,
    topics,
    client,
    subscriptions,
)
"""The module of each system, in the order of `ALL`; a further one goes to the end."""


def _declared(system: ModuleType) -> tuple[type[Step], ...]:
    """The steps of a system, in the order of their declaration."""
    own = [
        one for one in vars(system).values() if getattr(one, "__module__", "") == system.__name__
    ]
    return tuple(one for one in own if isinstance(one, type) and issubclass(one, Step) and one.text)


ALL: Final = tuple(one for system in _SYSTEMS for one in _declared(system))
"""Every step that is declared.  Seeds of simulated runs draw steps by their places in it."""

REFUSING: Final = (P9Refusing, P9Refused)
"""The other end that a batch can come to, from any of the steps before 7."""

PRODUCING: Final = tuple(one for one in _declared(produce) if one not in REFUSING)
"""A batch goes through them in this order; only 6c and 6d may come behind 7."""

BY_CODE: Final = {one.code: one for one in ALL}
