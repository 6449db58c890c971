"""Sessions of a producer that something else than a `LogSender` drives, until it hands them over.

A blocking program sends on a connection of its own as long as nothing goes wrong
(`octopi.blocking`).  Then its session, with what it holds unacknowledged, is adopted by a
`LogSender`, once and for good, which finishes it as it does everything else.  So a session has one
owner at any time, and each lent session is a producer of its own, with its own id.
"""

from __future__ import annotations

from collections.abc import Callable

from octopi.clients.cluster_handle import ClusterHandle
from octopi.clients.producing.log_sender import LogSender, SharedBySenders
from octopi.clients.producing.producer_session import ProducerSession
from octopi.clients.producing.receipts import wait_settled
from octopi.clients.producing.session_options import SessionOptions
from octopi.errors import OctopiError
from octopi.identifiers import PartitionId, ProducerId, TopicName
from octopi.record import PRODUCER_ID_BYTES


class LentSessions:
    """The lent sessions of one producer."""

    def __init__(
        self,
        cluster: ClusterHandle,
        shared: SharedBySenders,
        options: SessionOptions,
        on_taken: Callable[[int], None],
    ) -> None:
        """*on_taken* is called with the size of each message of an adopted session, in bytes."""
        self.cluster = cluster
        """The cluster of the producer."""
        self._shared = shared
        self._options = options
        self._on_taken = on_taken
        self._senders: list[LogSender] = []
        self._closed_by: OctopiError | None = None

    def lend(self, topic: TopicName, partition: PartitionId) -> ProducerSession:
        """A new session for a log.  Its caller drives it, in any thread."""
        producer_id = self.cluster.environment.randomness.token_bytes(PRODUCER_ID_BYTES)
        return ProducerSession(f"{topic}/{partition}", ProducerId(producer_id), self._options)

    def adopt(
        self, topic: TopicName, partition: PartitionId, session: ProducerSession
    ) -> LogSender:
        """Finish what *session* holds; its former owner has told it that it is disconnected."""
        self._forget_empty()
        sender = LogSender(self.cluster, self._shared, topic, partition, session)
        for batch in session.unsettled:
            self._on_taken(batch.builder.size_bytes)
        self._senders.append(sender)
        if self._closed_by is None:
            sender.pump()
        else:  # no task can look for the leader any more
            sender.close(self._closed_by)
        return sender

    @property
    def is_settled(self) -> bool:
        """Whether everything that was adopted has its outcome."""
        return not self._senders or not any(one.session.unsettled for one in self._senders)

    async def settled(self) -> None:
        """Wait until everything that was adopted before has its outcome."""
        for sender in list(self._senders):
            for batch in sender.session.unsettled:
                await wait_settled(sender, batch)
        self._forget_empty()

    def close(self, why: OctopiError) -> None:
        """Settle everything now, also what is adopted later."""
        self._closed_by = why
        for sender in self._senders:
            sender.close(why)

    def _forget_empty(self) -> None:
        self._senders = [one for one in self._senders if not one.session.is_empty]
