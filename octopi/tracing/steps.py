"""All steps of all systems.

If a step makes something durable, or sends something to another node, it has several edges, and its
code ends in a letter for each edge, in the order of time.  At the first edge nothing of it has
happened yet, at the last edge all of it.  An observer that raises at an edge stops the node there,
so later effects are neither on the disk nor sent.  A message counts as sent when it is
handed to its connection; "tells" and "told" have this meaning here.

The node that reached a step is known from the environment in which the step was observed, so the
fields name only other nodes:

================================= =====================================================
field                             meaning
================================= =====================================================
topic, topic_id, partition        the log; without a topic, all logs of the partition
epoch, version                    epoch and version of the partition record in question; epoch 0:
                                  the replica neither leads nor follows
offset, end                       where records begin and end (bytes, exclusive)
log_end, flushed_end              the end of this node's log, in the page cache and on the
                                  device
log_start, highwater              the start and the highwater mark of this node's log
producer, producer_epoch,         the batch: producer id (bytes), producer epoch, sequence of its
sequence, count                   first record, and number of records.  Version 1 records have no
                                  producer: None
attempt                           the number of a client's attempt to send a batch, or of a
                                  follower's session
records_epoch                     the epoch that wrote the records
in_sync, proposed                 broker ids in order: the set in force, and a set that the leader
                                  has proposed to the register (None: none), whose members have
                                  to acknowledge commits, too
follower, leader, broker          the other node
record, records, topics, entries  decisions, as objects
                                  (`octopi.wire.messages`, `octopi.coordination.journal_entries`)
disk_trouble, troubles            why a broker's disk accepts no records (empty: it does), and the
                                  changes of its replicas (`octopi.wire.messages`)
goal                              the wanted result of an election
                                  (`octopi.coordination.election.ElectionGoal`); None: the leader
                                  is gone
keep, begin                       the logs agree before *keep*, and records come from *begin* on
ends, first, more                 the ends of logs in an acceptance, and which part of it they are
                                  (`octopi.wire.membership.AcceptEpoch`)
folder                            where the files of a retired replica are now, on its disk
losses                            the known losses of a decision, for each partition record that
                                  accepts a loss
epochs                            the epochs and the offsets at which they began, in order
sid, name, state                  the id, name and state of a durable subscription (`octopi.model`)
key, value, states                an entry of the log ``~subscriptions``
                                  (`octopi.subscriptions.entries`); value None: the key is removed
log, member, claim, static        a partition of the subscription's topic, the member that has it,
                                  the claim of that assignment, and whether the member is static
logs, revoked                     pairs of log and claim that are sent to a member, and whether the
                                  member is to release them
mark, offset, acknowledge         the offset before which all messages are processed; the same as a
                                  member sends it, and the number to answer when it is committed
session, dealt                    an attach to a queue, as its leader numbers them, and messages
                                  that it is dealt: offset, end and attempt of each
acknowledged, released, rejected, what a queue's member answers: offset and attempt of each
extended                          delivery
stale, confirmed                  the messages of answers that don't count, and whether the others
                                  are committed
letter                            the number of a dead letter, among those of its queue
lost_from, lost_to, reset_to      the range that a member's log has lost; where an operator sets
                                  the mark
status, reason, why               the `octopi.errors.Status` of a refusal, and a text
instance, directory, message      an agreed value, an acceptor's directory, and what it answers or
                                  hears (`octopi.wire.agreement`)
term, candidate, start, snapshot  of several registers: the term, whom a register votes for, and
                                  the entries of their journal (`octopi.tracing.registers`)
relay_partition, relay, to        of topics in memory: the number of a relay partition, which are
                                  numbers of their own; the broker, and to whom it sends *message*
                                  (`octopi.relay.messages`)
members, founders, streams        a relay set; by whose votes a timeline begins, and with what
digest                            of a stream in memory, where the range or the transaction ends
generation, state                 of a topic that gets other partitions: the number of their list,
                                  and how far it is (`octopi.generation_record`)
generation, emptied, outcome      of a relay: of its timelines; how often it gave up what it held;
                                  how a produce ended (`octopi.relay.receiver`)
loads, move, partitions           what a broker reports of the partitions that it leads
                                  (`octopi.wire.loads`), a leadership that is moved
                                  (`octopi.coordination.shedding`), and those that are hot
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
    generations,
    join,
    produce,
    register,
    registers,
    relay,
    ring,
    shedding,
    subscriptions,
    topics,
)
from octopi.tracing.client import *  # noqa: F403
from octopi.tracing.durability import *  # noqa: F403
from octopi.tracing.election import *  # noqa: F403
from octopi.tracing.generations import *  # noqa: F403
from octopi.tracing.join import *  # noqa: F403
from octopi.tracing.produce import *  # noqa: F403
from octopi.tracing.produce import P9Refused, P9Refusing
from octopi.tracing.register import *  # noqa: F403
from octopi.tracing.registers import *  # noqa: F403
from octopi.tracing.relay import *  # noqa: F403
from octopi.tracing.ring import *  # noqa: F403
from octopi.tracing.shedding import *  # noqa: F403
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
    registers,
    ring,
    relay,
    shedding,
    generations,
)
"""The module of each system, in the order of `ALL`.  Append a further one at the end."""


def _declared(system: ModuleType) -> tuple[type[Step], ...]:
    """The steps of a system, in the order of their declaration."""
    own = [
        one for one in vars(system).values() if getattr(one, "__module__", "") == system.__name__
    ]
    return tuple(one for one in own if isinstance(one, type) and issubclass(one, Step) and one.text)


ALL: Final = tuple(one for system in _SYSTEMS for one in _declared(system))
"""All steps.  Seeds of simulated runs draw steps by their indexes here."""

OF_SEVERAL_REGISTERS: Final = frozenset(_declared(registers))
"""The steps that only happen in clusters with several registers."""

OF_RINGS: Final = frozenset(_declared(ring))
"""The steps that only happen in clusters without a register."""

OF_RELAYS: Final = frozenset(_declared(relay))
"""The steps that only happen in clusters with topics in memory."""

OF_SHEDDING: Final = frozenset(_declared(shedding))
"""The steps that only happen where leaderships move by load."""

OF_GENERATIONS: Final = frozenset(_declared(generations))
"""The steps that only happen where topics get other partitions."""

REFUSING: Final = (P9Refusing, P9Refused)
"""The steps of a refused batch; they may follow any of the steps before 7."""

PRODUCING: Final = tuple(one for one in _declared(produce) if one not in REFUSING)
"""The steps of a batch that is acknowledged, in order; only 6c and 6d may come after 7."""

BY_CODE: Final = {one.code: one for one in ALL}
