"""The acceptor of one broker of the ring, once the broker has an id."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import trio

from octopi.environment import Environment
from octopi.errors import LogReadOnlyError, NotReadyError, StorageError
from octopi.identifiers import BrokerId, InstanceId
from octopi.logger import get_logger
from octopi.roles.acceptor_journal import AcceptorJournal
from octopi.storage.directories import make_durable_directory
from octopi.tracing import steps
from octopi.wire.agreement import AcceptorId, AgreedValue, ToAcceptor, ValueChosen

_log = get_logger(__name__)


class OwnAcceptor:
    """Answers proposers from its journal, as long as its disk works."""

    def __init__(
        self,
        environment: Environment,
        data_directory: str,
        failed: Callable[[StorageError], None],
        first: Callable[[InstanceId], AgreedValue | None],
    ) -> None:
        """*failed* is told when the disk failed so that nothing may be answered any more.  *first*:
        see `octopi.agreement.acceptors.Acceptors`."""
        self._environment = environment
        self._path = f"{data_directory}/acceptor"
        self._failed = failed
        self._first = first
        self._journal: AcceptorJournal | None = None

    @property
    def identity(self) -> AcceptorId | None:
        """Who it is; None: the broker has no id yet."""
        return None if self._journal is None else self._journal.identity

    async def open(self, broker: BrokerId) -> None:
        """Be the acceptor of *broker* from now on.

        Raises:
          StorageError: if the journal can't be read or written.
        """
        await self.close()
        await make_durable_directory(self._environment.disk, self._path)
        self._journal = await AcceptorJournal.open(
            self._environment, self._path, broker, self._first
        )
        if (trace := self._environment.trace) is not None:
            trace(steps.A1Began(broker, self._journal.identity.directory))

    async def close(self) -> None:
        """Close the journal."""
        journal, self._journal = self._journal, None
        if journal is not None:
            with trio.CancelScope(shield=True), contextlib.suppress(StorageError):
                await journal.close()

    def accepted(self, instance: InstanceId) -> AgreedValue | None:
        """The value that was accepted last, or the first one; it may not be durable yet."""
        return None if self._journal is None else self._journal.accepted(instance)

    async def accept(
        self,
        message: ToAcceptor,
        answer: Callable[[object], None],
        may: Callable[[], bool] = lambda: True,
    ) -> None:
        """Handle *message*, if it *may* be handled now; *answer* sends what the acceptor says, once
        that is durable."""
        if self._journal is None or not may():
            return
        if isinstance(message, ValueChosen) and (trace := self._environment.trace) is not None:
            trace(steps.A3Heard(message.instance, message))
        try:
            answers = await self._journal.receive(message)
        except NotReadyError:  # a snapshot is being written: the proposer asks again
            return
        except LogReadOnlyError as error:
            self._failed(error)
            return
        except StorageError as error:
            _log.sparing(self._environment.clock).error("nothing accepted", why=str(error))
            return
        for one in answers:
            answer(one)

    async def shorten(self) -> None:
        """Shorten the journal, if it is long."""
        if self._journal is None:
            return
        try:
            await self._journal.shorten()
        except LogReadOnlyError as error:
            self._failed(error)
        except StorageError as error:
            _log.sparing(self._environment.clock).error("journal not shortened", why=str(error))
