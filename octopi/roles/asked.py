"""Answers what clients of brokers ask, which the brokers pass on to the node that decides.

The services are the same that answer a client of that node.  The broker has checked that the
client's token grants the request; its grants come along, because an answer leaves out what the
client may not know of, and its subject, because the register notes who created a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from octopi.environment import Environment
from octopi.errors import OctopiError, ProtocolError, RefusedError, Status
from octopi.identifiers import topic_name_fault
from octopi.limits import ASK_TIMEOUT_S, ASKED_ORDERS_MAX
from octopi.logger import get_logger
from octopi.roles.decider_context import DeciderClient
from octopi.security.grants import EVERYTHING, Grants, grants
from octopi.security.quotas import Creator
from octopi.transport.connection import Connection
from octopi.transport.failures import failure, failure_of
from octopi.transport.outbox import Outbox
from octopi.transport.services import Service, ServiceSession
from octopi.transport.turns import ConnectionTurn
from octopi.wire import messages as m
from octopi.wire.codec import decode, encode
from octopi.wire.endpoints import PASSED_ON

_log = get_logger(__name__)

_LOOKUPS: Final = frozenset(
    {m.DescribeTopic, m.ListTopics, m.DescribeCluster, m.DescribeEvents, m.DescribeLoads}
)
"""Requests that change nothing, but for a topic that is made when it is first used."""

SessionOfAsk = Callable[[m.Ask, DeciderClient, trio.Nursery, Creator], ServiceSession]
"""Makes the services for one request that was passed on; its OctopiError refuses to look at it."""


class AskService(Service):
    """Answers the requests that one broker passes on."""

    def __init__(
        self,
        environment: Environment,
        connection: Connection,
        tasks: trio.Nursery,
        session_of: SessionOfAsk,
    ) -> None:
        """*session_of*: makes the services that a client of this node has."""
        super().__init__({m.Ask: self._answer})
        self._connection = connection
        self._tasks = tasks
        self._session_of: Final = session_of
        self._order_count = 0
        if environment.watch is not None:
            environment.watch(self)

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"orders": self._order_count}

    def _answer(self, ask: m.Ask) -> None:
        """Answer at once, or start a task that does.

        Raises:
          RefusedError: if this node doesn't look at the request.
        """
        try:
            message = decode(ask.message, PASSED_ON)
            granted = _granted(ask)
        except ProtocolError as error:  # the broker may be of another version
            raise RefusedError(str(error.args[0]), error.status) from error
        lasts = (m.DECLARATIONS[type(message)].asked_s or 0) > ASK_TIMEOUT_S
        if lasts and self._order_count >= ASKED_ORDERS_MAX:
            raise RefusedError(
                f"{ASKED_ORDERS_MAX} orders that came through this broker are being carried out",
                Status.TOO_MANY,
            )
        client = AskedClient(self._connection, ask, granted, self._done if lasts else lambda: None)
        creator = Creator(ask.subject, ask.topics_max)
        session = self._session_of(ask, client, self._tasks, creator)
        self._order_count += lasts
        if lasts:
            self._connection.set_aside(ask.request)
        if type(message) not in _LOOKUPS:
            _log.info(
                "an order came through a broker",
                order=m.TYPE_NAMES[type(message)],
                topic=_topic_of(message),
                by=ask.subject or None,
            )
        try:
            session.handle(message)
        except OctopiError as error:
            client.refuse(message, error)

    def _done(self) -> None:
        self._order_count -= 1


class AskedClient(DeciderClient):
    """A client of a broker, for one request."""

    def __init__(
        self, connection: Connection, ask: m.Ask, granted: Grants, on_answered: Callable[[], None]
    ) -> None:
        """*connection*: of the broker.  *on_answered* is called when the request is answered."""
        self._connection = connection
        self._ask = ask
        self._granted = granted
        self._on_answered = on_answered

    @property
    def grants(self) -> Grants:
        """What the client may do."""
        return self._granted

    @property
    def outbox(self) -> Outbox:
        """The outbox of the broker's connection."""
        return self._connection.outbox

    @property
    def version(self) -> int:
        """That of the broker's connection: the broker knows its client's."""
        return self._connection.version

    @property
    def turn(self) -> ConnectionTurn | None:
        """The turn of the broker's connection."""
        return self._connection.turn

    def post(self, message: object) -> None:
        """Send *message*, the one answer to the client's request, to the broker.

        Raises:
          ConnectionLostError: if the broker's connection has ended.
        """
        self._on_answered()
        self._connection.post(m.Answer(self._ask.request, encode(message)))

    def refuse(self, message: object, error: OctopiError) -> None:
        """Answer the client's request *message* with *error*.

        Raises:
          OctopiError: *error* itself, if it stands for no status: a fault of ours.
        """
        request: int = getattr(message, "request", 0)
        if isinstance(error, ProtocolError):
            self.post(failure(request, error.status, str(error.args[0])))
            return
        answer = failure_of(request, error)
        if answer is None:
            raise error
        self.post(answer)


def _topic_of(message: object) -> str | None:
    """The topic that *message* names, for the log; None: it names none that can exist."""
    topic = getattr(message, "topic", None)
    return topic if isinstance(topic, str) and not topic_name_fault(topic) else None


def _granted(ask: m.Ask) -> Grants:
    """What the token of the client grants.

    Raises:
      RefusedError: INVALID_OPTION, if the grants are none.
    """
    if ask.grants is None:
        return EVERYTHING
    return grants({one.verb: one.patterns for one in ask.grants})
