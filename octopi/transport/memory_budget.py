"""How much memory the connections of a node may use together.

Every connection has an account for its messages (encoded ones that wait to be sent, and received
ones that are incomplete) and one for its waiting tasks (readings, fetches, members of durable
subscriptions, requests that are passed on).  `octopi.transport.memory_pool` has the rule by which
accounts share the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import nlargest
from typing import Final

import attrs

from octopi.limits import (
    CONNECTIONS_MAX,
    MEMORY_ALLOWANCE_BYTES,
    MEMORY_BUDGET_BYTES,
    MEMORY_LOAN_BYTES,
    WAITING_TASK_MEMORY_BYTES,
)
from octopi.transport.memory_pool import NEVER, UNFINISHED, MemoryAccount, Pool

OUTBOX: Final = "outbox"
"""Encoded messages that wait to be sent."""
READINGS: Final = "readings"
FETCHES: Final = "fetches"
"""Fetches that wait for records."""
MEMBERS: Final = "members"
"""Members of durable subscriptions."""
ASKS: Final = "asks"
"""Requests that a broker passes on to the register."""


@attrs.frozen
class Usage:
    """How many bytes of one kind are held of a pool."""

    kind: str
    """`OUTBOX`, `UNFINISHED`, `READINGS`, `FETCHES`, `MEMBERS` or `ASKS`."""
    held_bytes: int


class MemoryBudget:
    """The memory for the connections of one node.

    Three eighths are for messages to and from clients, three eighths for waiting tasks, and two
    eighths for messages from other nodes.  Messages to other nodes are only counted: the protocol
    bounds them, and clients must not be able to stop the traffic between nodes.
    """

    def __init__(
        self,
        total_bytes: int = MEMORY_BUDGET_BYTES,
        *,
        connections_max: int = CONNECTIONS_MAX,
        loan_bytes: int = MEMORY_LOAN_BYTES,
    ) -> None:
        self.total_bytes: Final = total_bytes
        self.messages: Final = _message_pool(total_bytes * 3 // 8, connections_max, loan_bytes)
        self.tasks: Final = Pool(total_bytes * 3 // 8, allowance_bytes=WAITING_TASK_MEMORY_BYTES)
        self.from_peers: Final = _message_pool(total_bytes // 4, 0, loan_bytes)
        self.to_peers: Final = _unbounded_pool()

    @property
    def waiting_count(self) -> int:
        """Subjects that wait for memory."""
        return sum(one.waiting_count for one in (self.messages, self.tasks, self.from_peers))

    @property
    def used_bytes(self) -> int:
        """What all subjects hold together of the shared pools."""
        return sum(one.used_bytes for one in (self.messages, self.tasks, self.from_peers))

    def connection(self, subject: str, *, is_peer: bool) -> ConnectionMemory:
        """The accounts of a new connection; callers have to call `ConnectionMemory.close`.
        *is_peer*: the connection is another node's."""
        if is_peer:
            incoming, outgoing = (
                MemoryAccount(self.from_peers, subject),
                MemoryAccount(self.to_peers, subject),
            )
        else:
            incoming = outgoing = MemoryAccount(self.messages, subject)
        return ConnectionMemory(incoming, outgoing, self.tasks)

    def usage(self) -> Iterator[Usage]:
        """What is held of each pool, by kind.  The kinds of messages to and from other nodes are
        called ``peer_outbox`` and ``peer_unfinished``."""
        for pool, kind, name in (
            (self.messages, OUTBOX, OUTBOX),
            (self.messages, UNFINISHED, UNFINISHED),
            (self.tasks, READINGS, READINGS),
            (self.tasks, FETCHES, FETCHES),
            (self.tasks, MEMBERS, MEMBERS),
            (self.tasks, ASKS, ASKS),
            (self.to_peers, OUTBOX, "peer_outbox"),
            (self.from_peers, UNFINISHED, "peer_unfinished"),
        ):
            yield Usage(name, pool.held.get(kind, 0))

    def largest(self, count: int) -> list[tuple[str, int]]:
        """The *count* subjects that hold most of the shared pools, with the bytes that they
        hold."""
        held: dict[str, int] = {}
        for pool in (self.messages, self.tasks, self.from_peers):
            for name, size_bytes in pool.largest(count):
                held[name] = held.get(name, 0) + size_bytes
        return nlargest(count, held.items(), key=lambda pair: pair[1])


def _message_pool(size_bytes: int, connections_max: int, loan_bytes: int) -> Pool:
    """A pool for messages whose shares, loan and allowances have *size_bytes* together."""
    reserved_bytes = loan_bytes + 2 * connections_max * MEMORY_ALLOWANCE_BYTES
    return Pool(
        max(0, size_bytes - reserved_bytes),
        allowance_bytes=MEMORY_ALLOWANCE_BYTES,
        loan_bytes=loan_bytes,
    )


def _unbounded_pool() -> Pool:
    return Pool(0, allowance_bytes=NEVER)


class ConnectionMemory:
    """The memory accounts of one connection."""

    __slots__ = ("_tasks", "_tasks_pool", "incoming", "outgoing")

    def __init__(self, incoming: MemoryAccount, outgoing: MemoryAccount, tasks: Pool) -> None:
        self.incoming: Final = incoming
        """For messages that are received; for a client this is the same account as `outgoing`."""
        self.outgoing: Final = outgoing
        """For messages that wait to be sent."""
        self._tasks_pool = tasks
        self._tasks: MemoryAccount | None = None

    @property
    def tasks(self) -> MemoryAccount:
        """For waiting tasks.  Not to be used after `close`."""
        if self._tasks is None:
            self._tasks = MemoryAccount(self._tasks_pool, self.incoming.name)
        return self._tasks

    def close(self) -> None:
        """The connection has ended.  Safe to call twice."""
        self.incoming.close()
        self.outgoing.close()
        if self._tasks is not None:
            self._tasks.close()


def unbounded_memory() -> ConnectionMemory:
    """Accounts without bounds, for a connection that this side opened to a peer of its choice."""
    pool = _unbounded_pool()
    account = MemoryAccount(pool, "")
    return ConnectionMemory(account, account, pool)
