"""When a client suspects a silent broker, and asks the register whether it was replaced.

A pending request makes the broker suspicious after `LEADER_SILENCE_S`.  For an idle reading the
client probes the broker first, because silence may just mean that there are no new records, and a
probe costs the register nothing.  If the broker doesn't answer the probe either, it is suspicious.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Protocol

from octopi.environment import Clock
from octopi.limits import (
    HEARTBEAT_INTERVAL_S,
    LEADER_SILENCE_S,
    QUESTION_INTERVAL_S,
    READER_SILENCE_S,
    SILENCE_GROWTH,
)

_CLOCK_RESOLUTION_S: Final = 1e-6
"""Differences of times are inexact: a check that is due within this time is due now."""


class SilenceTimer:
    """Says when to ask about a silent peer.

    A check is due after *first_s* of silence, then whenever the silence has grown by the factor
    `SILENCE_GROWTH`.  When the peer sends something, the silence ends, and the next silence is
    timed from the beginning.  All times are seconds on one clock of the caller.
    """

    def __init__(self, first_s: float, since: Callable[[], float | None]) -> None:
        """*since* returns when the current silence began, or None if there is none."""
        self._first_s = first_s
        self._since = since
        self._began: float | None = None
        self._due_s = first_s
        """How long the silence will have lasted when the next check is due."""
        self._soon_s = QUESTION_INTERVAL_S

    def due_at(self) -> float:
        """When the next check is due if the silence lasts; infinity: there is no silence."""
        began = self._since()
        if began != self._began:
            self._began = began
            self._due_s = self._first_s
            self._soon_s = QUESTION_INTERVAL_S
        return math.inf if began is None else began + self._due_s

    def asked(self, now: float) -> None:
        """The check that was due was made at *now*."""
        assert self._began is not None, "nothing was due"
        self._due_s = SILENCE_GROWTH * max(self._due_s, now - self._began)

    def no_leader(self, now: float) -> None:
        """The check found that no broker leads.  That changes soon, so the next check is due
        soon, unless the peer has sent something meanwhile."""
        is_due_late = self.due_at() > now + self._soon_s
        if is_due_late and self._began is not None and self._began <= now:
            self._due_s = now - self._began + self._soon_s
            self._soon_s *= 2


class Suspicion(Protocol):
    """Grows while a broker is silent."""

    async def due(self) -> None:
        """Return when the register is to be asked (again)."""

    def no_leader(self) -> None:
        """The register answered that no broker leads now."""


class LinkActivity(Protocol):
    """When a connection was last active: see `octopi.transport.connection.Connection`."""

    @property
    def last_payload_at(self) -> float:
        """When the last message arrived that was not only a heartbeat."""

    @property
    def last_received_at(self) -> float:
        """When the last message arrived."""

    @property
    def probed_at(self) -> float:
        """When the connection was probed last."""

    @property
    def end_reason(self) -> str | None:
        """Why the connection ended; None while it is open."""


class RequestSuspicion:
    """The suspicion of a broker to which a request was just sent."""

    def __init__(self, clock: Clock, first_s: float = LEADER_SILENCE_S) -> None:
        self._clock = clock
        asked_at = clock.now()
        self._silence = SilenceTimer(first_s, lambda: asked_at)

    async def due(self) -> None:
        """See `Suspicion`."""
        await self._clock.sleep_until(self._silence.due_at())
        self._silence.asked(self._clock.now())

    def no_leader(self) -> None:
        """See `Suspicion`."""
        self._silence.no_leader(self._clock.now())


class ReadingSuspicion:
    """The suspicion of a broker from which logs are read over one connection.  All readings share
    what is known of the connection.

    The broker must answer a probe, and must send a heartbeat when it has sent nothing else for
    `HEARTBEAT_INTERVAL_S`.  The connection is probed `READER_SILENCE_S` after the last records, and
    again when that silence has doubled.  Silence longer than `HEARTBEAT_INTERVAL_S` isn't probed,
    since heartbeats then tell as much: an idle connection carries only them.
    """

    def __init__(self, clock: Clock, connection: LinkActivity, probe: Callable[[], None]) -> None:
        """*probe*: calls `Connection.probe`."""
        self._clock = clock
        self._connection = connection
        self._probe = probe
        self._silence = SilenceTimer(LEADER_SILENCE_S, self._overdue_since)

    async def due(self) -> None:
        """See `Suspicion`."""
        while True:
            now = self._clock.now() + _CLOCK_RESOLUTION_S
            if self._probe_at() <= now:
                self._probe()
            due_at = self._silence.due_at()
            if due_at <= now:
                self._silence.asked(now)
                return
            # Records that arrive move both times, and nothing is due within READER_SILENCE_S after
            # records.
            await self._clock.sleep_until(min(due_at, self._probe_at(), now + READER_SILENCE_S))

    def no_leader(self) -> None:
        """See `Suspicion`."""
        self._silence.no_leader(self._clock.now())

    @property
    def _is_probed(self) -> bool:
        return self._connection.probed_at > self._connection.last_received_at

    def _overdue_since(self) -> float:
        if self._is_probed:
            return self._connection.probed_at
        return self._connection.last_received_at + HEARTBEAT_INTERVAL_S

    def _probe_at(self) -> float:
        received_at = self._connection.last_payload_at
        silence_s = max(READER_SILENCE_S, 2 * (self._connection.probed_at - received_at))
        is_over = self._connection.end_reason is not None
        if is_over or self._is_probed or silence_s > HEARTBEAT_INTERVAL_S:
            return math.inf
        return received_at + silence_s
