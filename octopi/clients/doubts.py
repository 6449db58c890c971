"""When a client doubts a broker that says nothing, so that it asks the register about it.

Whoever waits for an answer doubts soon.  Whoever reads a log waits for nothing in
particular: there may be nothing new.  So it has the broker itself say something when it
falls silent, which costs the register nothing, and when even that says nothing it doubts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from octopi.clients.silence import Silence
from octopi.environment import Clock
from octopi.limits import HEARTBEAT_INTERVAL_S, LEADER_SILENCE_S, READER_SILENCE_S

_CLOCK_RESOLUTION_S: Final = 1e-6
"""Differences of times are inexact: what is due so soon is due now."""


class Doubt(Protocol):
    """Grows while a broker is silent."""

    async def due(self) -> None:
        """Return when the register is to be asked (again)."""

    def nobody_there(self) -> None:
        """It said that nobody is in charge now."""


class Heard(Protocol):
    """What a connection has heard: see `octopi.transport.connection.Connection`."""

    @property
    def told_at(self) -> float:
        """When the last message came that was more than a sign of life."""

    @property
    def heard_at(self) -> float:
        """When the last message came."""

    @property
    def probed_at(self) -> float:
        """When it was probed last."""

    @property
    def end_reason(self) -> str | None:
        """Why it ended; None while it hasn't."""


class AwaitingAnswer:
    """Something was asked just now."""

    def __init__(self, clock: Clock, first_s: float = LEADER_SILENCE_S) -> None:
        self._clock = clock
        asked_at = clock.now()
        self._silence = Silence(first_s, lambda: asked_at)

    async def due(self) -> None:
        """See `Doubt`."""
        await self._clock.sleep_until(self._silence.due_at())
        self._silence.asked(self._clock.now())

    def nobody_there(self) -> None:
        """See `Doubt`."""
        self._silence.nobody_there(self._clock.now())


class Reading:
    """Logs are read over a connection; all that do so share its signs of life.

    It owes an answer to a probe, and a heartbeat when nothing else came for so long.  It is
    probed `READER_SILENCE_S` after its last news, and when that silence has doubled, until
    heartbeats tell as much: an idle connection carries them and nothing else.
    """

    def __init__(self, clock: Clock, connection: Heard, probe: Callable[[], None]) -> None:
        """*probe* is to call `Connection.probe`."""
        self._clock = clock
        self._connection = connection
        self._probe = probe
        self._silence = Silence(LEADER_SILENCE_S, self._owed_since)

    async def due(self) -> None:
        """See `Doubt`."""
        while True:
            now = self._clock.now() + _CLOCK_RESOLUTION_S
            if self._probe_at() <= now:
                self._probe()
            due_at = self._silence.due_at()
            if due_at <= now:
                self._silence.asked(now)
                return
            # News change everything, and nothing is due sooner than so long after them.
            await self._clock.sleep_until(min(due_at, self._probe_at(), now + READER_SILENCE_S))

    def nobody_there(self) -> None:
        """See `Doubt`."""
        self._silence.nobody_there(self._clock.now())

    @property
    def _is_probed(self) -> bool:
        return self._connection.probed_at > self._connection.heard_at

    def _owed_since(self) -> float:
        if self._is_probed:
            return self._connection.probed_at
        return self._connection.heard_at + HEARTBEAT_INTERVAL_S

    def _probe_at(self) -> float:
        news_at = self._connection.told_at
        silence_s = max(READER_SILENCE_S, 2 * (self._connection.probed_at - news_at))
        is_over = self._connection.end_reason is not None
        if is_over or self._is_probed or silence_s > HEARTBEAT_INTERVAL_S:
            return math.inf
        return news_at + silence_s
