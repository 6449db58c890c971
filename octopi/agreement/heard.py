"""Which brokers are heard, and which are suspected to be dead.  No I/O."""

from __future__ import annotations

import attrs

from octopi.identifiers import BrokerId, Incarnation
from octopi.limits import SUSPECT_S


@attrs.frozen
class _HeardProcess:
    incarnation: Incarnation
    at: float
    is_gone: bool = False


class HeardBrokers:
    """When one broker heard each of the others.

    A broker that was just restarted counts all others as heard when it started: its former process
    may have granted a leader the right to lead (`octopi.agreement.lease`) a moment before.
    """

    def __init__(self, now: float) -> None:
        """*now*: when this broker's process started, by its clock."""
        self._started_at = now
        self._heard: dict[BrokerId, _HeardProcess] = {}

    def hear(self, broker: BrokerId, incarnation: Incarnation, now: float) -> None:
        """A pulse came from *broker*."""
        known = self._heard.get(broker)
        if known is None or incarnation >= known.incarnation:
            self._heard[broker] = _HeardProcess(incarnation, now)

    def hear_end(self, broker: BrokerId) -> None:
        """The process of *broker* has ended: its connections broke, and a new one was refused."""
        known = self._heard.get(broker)
        if known is not None:
            self._heard[broker] = attrs.evolve(known, is_gone=True)

    def is_suspected(self, broker: BrokerId, incarnation: Incarnation, now: float) -> bool:
        """Whether the process *incarnation* of *broker* is taken for dead."""
        known = self._heard.get(broker)
        if known is None or known.incarnation < incarnation:
            return now - self._started_at >= SUSPECT_S
        if known.incarnation > incarnation or known.is_gone:
            return True
        return now - known.at >= SUSPECT_S

    def knows(self, broker: BrokerId) -> bool:
        """Whether *broker* was ever heard."""
        return broker in self._heard

    def live(self, now: float) -> frozenset[BrokerId]:
        """The brokers that were heard and are not taken for dead, in whatever incarnation."""
        return frozenset(
            broker
            for broker, known in self._heard.items()
            if not known.is_gone and now - known.at < SUSPECT_S
        )
