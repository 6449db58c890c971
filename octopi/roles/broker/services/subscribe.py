"""Subscribing: a log's records are sent as they are committed, within the client's credit."""

from __future__ import annotations

from octopi.errors import NeedsTimeError, ProtocolError, RefusedError, Status
from octopi.limits import SUBSCRIPTIONS_MAX
from octopi.roles.broker.services.context import ClientContext
from octopi.roles.broker.subscription import Subscription
from octopi.security.authorization import not_granted
from octopi.security.grants import Verb
from octopi.transport.failures import failure
from octopi.transport.memory_budget import SUBSCRIPTIONS
from octopi.transport.services import Service
from octopi.wire import messages as m


class SubscribeService(Service):
    """The subscriptions of one connection; each has a task in the connection's nursery."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(
            {
                m.Subscribe: self._subscribe,
                m.Credit: self._grant,
                m.Unsubscribe: self._unsubscribe,
            }
        )
        self._context = context
        self._connection = context.connection
        self._subscriptions: dict[int, Subscription] = {}

    def sizes(self) -> dict[str, int]:
        """See `octopi.environment.Sized`."""
        return {"subscriptions": len(self._subscriptions)}

    def token_refreshed(self) -> None:
        """Subscriptions that are granted no more end."""
        for request, subscription in list(self._subscriptions.items()):
            if not self._connection.grants.allows(Verb.SUBSCRIBE, subscription.topic):
                self._subscriptions.pop(request)
                subscription.stop()
                why = not_granted(Verb.SUBSCRIBE, subscription.topic)
                self._connection.post(failure(request, Status.FORBIDDEN, why))

    def _grant(self, message: m.Credit) -> None:
        subscription = self._subscriptions.get(message.request)
        useful = subscription is not None and subscription.grant(message.until)
        if useful and self._connection.turn is not None:
            self._connection.turn.was_of_use()

    def _unsubscribe(self, message: m.Unsubscribe) -> None:
        subscription = self._subscriptions.pop(message.request, None)
        if subscription is not None:
            subscription.stop()
        self._connection.post(m.Done(message.request))

    def _subscribe(self, message: m.Subscribe) -> None:
        if message.request in self._subscriptions:
            raise ProtocolError(f"subscription {message.request} is open already")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            raise RefusedError(
                f"a connection has at most {SUBSCRIPTIONS_MAX} subscriptions", Status.TOO_MANY
            )
        log = self._context.served(message.topic, message.partition)
        subscription = Subscription(
            self._connection, self._context.manager, self._context.readers, log, message
        )
        self._context.charge_task(SUBSCRIPTIONS)
        opens = False
        entry = self._connection.entry
        if entry is not None:
            try:
                entry.account.subscribe(entry.identity.quota)
            except RefusedError:
                self._context.release_task(SUBSCRIPTIONS)
                raise
        try:
            subscription.open()
        except NeedsTimeError:
            opens = True  # by its task
        except BaseException:
            self._unsubscribed()
            raise
        self._subscriptions[message.request] = subscription
        self._context.tasks.start_soon(self._run_subscription, message.request, subscription, opens)

    async def _run_subscription(
        self, request: int, subscription: Subscription, opens: bool
    ) -> None:
        try:
            await subscription.run(opens=opens)
        finally:
            self._unsubscribed()
            if self._subscriptions.get(request) is subscription:
                del self._subscriptions[request]

    def _unsubscribed(self) -> None:
        self._context.release_task(SUBSCRIPTIONS)
        if self._connection.entry is not None:
            self._connection.entry.account.unsubscribed()
