"""A member of a run's durable subscription, life after life: it joins, leaves, is cancelled, and
comes back."""

from __future__ import annotations

from random import Random
from typing import Final

import trio

from octopi.environment import Clock, Environment
from octopi.errors import (
    HistoryForkedError,
    HistoryLostError,
    MemberFencedError,
    OctopiError,
    SubscriptionBusyError,
    UnknownSubscriptionError,
)
from octopi.retry import may_pass
from sim.run.client_log import ClientLog

SESSION_TIMEOUT_S: Final = 1.0

_AGAIN_S: Final = 0.1
_NAP_S: Final = 1.5
"""Longer than a session timeout, and than an ack timeout."""


class CancelledWorkError(Exception):
    """The program gives its work up: what it has in hand is not marked, and not answered."""


class MemberLives:
    """Member number *number*.  A subclass says what it does in one life (`live`)."""

    def __init__(self, client_log: ClientLog, number: int) -> None:
        self.name = f"m{number}"
        self.host = f"member-{number}"
        self.client_log = client_log
        self.number = number
        self.life = 0
        self._left = 0
        """Messages until it leaves; negative: it stays."""

    async def run(self, environment: Environment) -> None:
        """`octopi.simulation.kernel.host.Program`."""
        client_log, clock = self.client_log, environment.clock
        await client_log.topics_made.wait()
        stay = client_log.plan.workload.member_stay_count
        while True:
            self.life += 1
            randomness = client_log.cluster.world.random("member", self.number, self.life)
            self._left = randomness.randint(1, 2 * stay) if stay and not self.is_late else -1
            try:
                await self.live(environment, randomness)
            except (CancelledWorkError, MemberFencedError, SubscriptionBusyError):
                pass
            except (HistoryLostError, HistoryForkedError):
                pass
            except UnknownSubscriptionError as error:
                may_go = "delete" in client_log.plan.workload.chores
                # A broker that leads without knowing what its disk lost doesn't know it, either.
                if not (may_go or client_log.plan.may_lose or client_log.unfit):
                    client_log.complain(self.name, error)
                    return
            except OctopiError as error:
                if not may_pass(error):
                    client_log.complain(self.name, error)
                    return
            await clock.sleep_until(clock.now() + _AGAIN_S)

    async def live(self, environment: Environment, randomness: Random) -> None:
        """Join, work, and leave.

        Raises:
          CancelledWorkError: if it gave its work up.
          OctopiError: why it could not go on.
        """
        raise NotImplementedError

    @property
    def static_name(self) -> str | None:
        """A name of its own; None: it has none."""
        workload = self.client_log.plan.workload
        return self.name if self.number <= workload.static_members else None

    @property
    def is_late(self) -> bool:
        """Whether it is to stay and to come to the end."""
        return self.client_log.all_well.is_set()

    async def spend_time(self, clock: Clock, randomness: Random) -> None:
        """Work on one message."""
        pause_s = self.client_log.plan.workload.member_pause_s
        if self.is_late or not pause_s:
            await trio.lowlevel.checkpoint()
            return
        long_s = _NAP_S if randomness.random() < 0.02 else 0.0
        await clock.sleep_until(clock.now() + long_s + randomness.expovariate(1 / pause_s))

    def is_over(self, count: int, randomness: Random) -> bool:
        """Whether it is to leave, after *count* messages more.

        Raises:
          CancelledWorkError: if it is to give up what it has in hand.
        """
        if self._left < 0:
            return False
        self._left = max(0, self._left - count)
        if self._left:
            return False
        if randomness.random() < 0.5:
            raise CancelledWorkError
        return True
