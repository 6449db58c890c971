"""Handles produces: appends a client's records to a log that this broker leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from octopi.errors import ConnectionLostError, OctopiError
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.broker.forwarded_produces import ForwardedProduces
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.produced import answer_to_produce, append_produced
from octopi.roles.broker.services.context import ClientContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class ProduceService(Service):
    """Takes records, and answers when the in-sync replicas have them."""

    def __init__(self, forwarded: ForwardedProduces, context: ClientContext) -> None:
        super().__init__({m.Produce: self._produce})
        self._forwarded = forwarded
        self._context = context
        self._manager = context.manager
        self._logs = context.logs
        self._connection = context.connection

    def _produce(self, message: m.Produce) -> None:
        connection = self._connection
        if self._context.memory.has(message.topic):
            self._context.memory.produce(connection, message)
            return
        if message.forward and (leader := self._forwarded.leader_elsewhere(message.partition)):
            self._forwarded.pass_on(connection, message, leader)
            return
        log = self._logs.find(message.topic, message.partition)
        settle = self._reserved(log, len(message.records))

        def answer(outcome: CommitReceipt | Refusal) -> None:
            if settle is not None:
                settle(outcome)
            with contextlib.suppress(ConnectionLostError):  # the client asks again elsewhere
                connection.post(answer_to_produce(self._manager, message, outcome))

        try:
            append_produced(self._manager, log, message, answer)
        except OctopiError:
            if settle is not None:
                settle(None)
            raise

    def _reserved(
        self, log: LocalLog, size_bytes: int
    ) -> Callable[[CommitReceipt | Refusal | None], None] | None:
        """Count records for the quota of the peer's token.  Returns the function to call with the
        outcome; None: the token has no quota.

        Raises:
          RefusedError: with QUOTA_EXCEEDED.
        """
        entry = self._connection.entry
        if entry is None or (bytes_max := entry.identity.quota.bytes) is None:
            return None
        account, name = entry.account, (log.topic.topic, log.topic.topic_id, log.partition)
        now = self._context.environment.clock.now()
        account.reserve(size_bytes, bytes_max, self._logs.bounds, now)

        def settle(content: CommitReceipt | Refusal | None) -> None:
            if isinstance(content, CommitReceipt) and not content.duplicate:
                account.stored(name, content.offset, size_bytes, bytes_max)
            else:
                account.refused(size_bytes)

        return settle
