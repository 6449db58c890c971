"""A request about durable subscriptions that a connection has made."""

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
"""Confirmations that one attach waits for."""


class SubscriptionAnswers(Protocol):
    """What answers the requests of one connection."""

    def tell(self, asked: AskedSubscription, effect: e.Effect) -> None:
        """Answer a request with what the machine says."""

    def ended(self, asked: AskedSubscription, error: OctopiError) -> None:
        """The leadership ended before the machine answered, or while a member was there."""


@attrs.define(eq=False)
class AskedSubscription:
    """A request of this connection.

    See `octopi.roles.broker.subscriptions.led_partition.SessionOwner`."""

    service: SubscriptionAnswers
    request: int
    led: LedPartition
    topic: str
    lasts: bool = False
    """Whether it is a join or an attach, which ends later than with its first answer."""
    name: str | None = None
    """Of the subscription, for grants."""
    session: e.Session = 0
    count_max: int = 0
    """Subscriptions that its answer lists, at most."""
    confirm_count: int = 0
    """Confirmations that are waited for."""
    is_over: bool = False
    reads: bool = False
    """Whether it is an attach to a queue, which is sent records."""
    deals: QueueDeals | None = None
    """Of an attach to a queue: what is to be sent."""

    def missing(self, grants: Grants) -> Verb | None:
        """What *grants* don't allow of it; None: nothing."""
        if not grants.allows(Verb.CONSUME, self.topic, self.name):
            return Verb.CONSUME
        if self.reads and not grants.allows(Verb.SUBSCRIBE, self.topic):
            return Verb.SUBSCRIBE
        return None

    def may_confirm(self) -> bool:
        """Count one more confirmation; return whether an attach may wait for it."""
        self.confirm_count += 1
        return self.confirm_count <= CONFIRMS_MAX

    def tell(self, effect: e.Effect) -> None:
        """Answer it."""
        self.led.counter.told(effect, self.topic, self.name)
        self.service.tell(self, effect)

    def end(self, session: e.Session, error: OctopiError) -> None:
        """It has ended without an answer of the machine."""
        self.service.ended(self, error)


def remembering(
    asked: AskedSubscription,
    call: Call,
    machine: PartitionSubscriptions,
    session: e.Session,
    now: float,
) -> list[e.Effect]:
    """*call*; answers that come at once find the session in *asked*."""
    asked.session = session
    return call(machine, session, now)
