"""Handles produces: appends a client's records to a log that this broker leads."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from octopi.errors import ConnectionLostError, OctopiError, Status
from octopi.replication.effects import CommitReceipt, Refusal
from octopi.roles.answers import refuse
from octopi.roles.broker.local_log import LocalLog
from octopi.roles.broker.redirects import redirect
from octopi.roles.broker.services.context import ClientContext
from octopi.transport.failures import failure
from octopi.transport.services import Service
from octopi.wire import messages as m


class ProduceService(Service):
    """Takes records, and answers when the in-sync replicas have them."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__({m.Produce: self._produce})
        self._context = context
        self._logs = context.logs
        self._connection = context.connection

    def _produce(self, message: m.Produce) -> None:
        connection, request = self._connection, message.request
        if self._context.memory.has(message.topic):
            self._context.memory.produce(connection, message)
            return
        log = self._logs.find(message.topic, message.partition)
        settle = self._reserved(log, len(message.records))

        def answer(content: CommitReceipt | Refusal) -> None:
            if settle is not None:
                settle(content)
            with contextlib.suppress(ConnectionLostError):  # the client asks again elsewhere
                if isinstance(content, CommitReceipt):
                    connection.post(
                        m.Produced(request, content.offset, content.epoch, content.duplicate)
                    )
                elif content.status == Status.NOT_LEADER:
                    refuse(
                        connection,
                        request,
                        redirect(self._context.manager, content.reason, log.partition),
                    )
                else:
                    connection.post(
                        failure(request, content.status, content.reason, offset=content.offset)
                    )

        try:
            replica = self._context.replica(message.partition)
            generation = max(1, message.generation)
            replica.produce(log, message.records, answer, message.condition, generation)
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
