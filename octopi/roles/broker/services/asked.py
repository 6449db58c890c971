"""One request of a connection about durable subscriptions."""

from __future__ import annotations

from typing import Final, Protocol

import attrs

from octopi.errors import OctopiError
from octopi.roles.broker.services.queues import QueueDeals
from octopi.roles.broker.subscriptions.led_partition import Call, LedPartition
from octopi.security.grants import Grants, Verb
from octopi.subscriptions import effects as e
from octopi.subscriptions.partition_subscriptions import PartitionSubscriptions

CONFIRMS_MAX: Final = 1_000
"""The number of confirmations that one attach may wait for."""


class SubscriptionAnswers(Protocol):
    """Answers the requests of one connection."""

    def tell(self, asked: AskedSubscription, effect: e.Effect) -> None:
        """Answer a request with the machine's *effect*."""

    def ended(self, asked: AskedSubscription, error: OctopiError) -> None:
        """Answer a request with *error*: the leadership ended before the machine answered, or while
        a member was there."""


@attrs.define(eq=False)
class AskedSubscription:
    """One request of a connection.

    See `octopi.roles.broker.subscriptions.led_partition.SessionOwner`.
    """

    service: SubscriptionAnswers
    request: int
    led: LedPartition
    topic: str
    lasts: bool = False
    """Whether it is a join or an attach, which goes on after its first answer."""
    name: str | None = None
    """The name of the subscription, by which grants are checked; None: not known."""
    session: e.Session = 0
    """The session that the machine knows it by."""
    count_max: int = 0
    """The most subscriptions that its answer may list."""
    confirm_count: int = 0
    """The number of confirmations that it waits for."""
    is_over: bool = False
    """Whether it has ended."""
    reads: bool = False
    """Whether it is an attach to a queue, which gets records."""
    deals: QueueDeals | None = None
    """The messages to send to it, if it is an attach to a queue that was dealt some."""

    def missing(self, grants: Grants) -> Verb | None:
        """The verb that it needs and *grants* don't allow; None if they allow it."""
        if not grants.allows(Verb.CONSUME, self.topic, self.name):
            return Verb.CONSUME
        if self.reads and not grants.allows(Verb.SUBSCRIBE, self.topic):
            return Verb.SUBSCRIBE
        return None

    def may_confirm(self) -> bool:
        """Count one more confirmation; return whether the attach may wait for it."""
        self.confirm_count += 1
        return self.confirm_count <= CONFIRMS_MAX

    def tell(self, effect: e.Effect) -> None:
        """Answer it with *effect*."""
        self.led.counter.told(effect, self.topic, self.name)
        self.service.tell(self, effect)

    def end(self, session: e.Session, error: OctopiError) -> None:
        """End it with *error*, without an answer of the machine."""
        self.service.ended(self, error)


def remembering(
    asked: AskedSubscription,
    call: Call,
    machine: PartitionSubscriptions,
    session: e.Session,
    now: float,
) -> list[e.Effect]:
    """Perform *call*, with *session* noted in *asked* for answers that come at once."""
    asked.session = session
    return call(machine, session, now)
