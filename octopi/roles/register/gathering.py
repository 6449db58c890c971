"""The time after its start in which a register waits for brokers' reports before it decides."""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.limits import GATHER_S
from octopi.roles.register.register_tracer import RegisterTracer


class Gathering:
    """Waits for the reports of brokers.  They know the decisions that the journal lacks because it
    is new or because the register was stopped while it learned them again."""

    def __init__(
        self, environment: Environment, controller: Controller, tracer: RegisterTracer
    ) -> None:
        self._environment = environment
        self._controller = controller
        self._tracer = tracer
        self._is_over = trio.Event()
        self._joins_held = 0
        """The number of brokers that came before the register may decide, and are not admitted
        yet."""
        self._comes_again: dict[str, float] = {}
        """Brokers that could not be admitted because writing the journal failed: by the nonce of
        the incarnation, the time until which the broker is expected to come again.  Their reports
        don't count yet, and may contain what a client asks for."""
        self._all_came = trio.Event()

    async def run(self, seconds: float) -> None:
        """Wait for brokers to join, at most for *seconds*."""
        with self._environment.clock.timeout(seconds):
            await self._all_came.wait()
        self._tracer.gathered(self._controller.state.cluster)
        self._is_over.set()

    def all_came(self) -> None:
        """All brokers in the journal have joined: end the wait."""
        self._all_came.set()

    async def wait(self) -> None:
        """Wait until the register may decide; called for each broker that asks to join."""
        self._joins_held += 1
        try:
            await self._is_over.wait()
        finally:
            self._joins_held -= 1

    # --- brokers that are being let in ---------------------------------------------------

    def expect(self, nonce: str) -> None:
        """A broker is about to be admitted; if that fails, it comes again."""
        self._comes_again[nonce] = self._environment.clock.now() + GATHER_S

    def forget(self, nonce: str) -> None:
        """The broker was refused, so it is not expected again."""
        del self._comes_again[nonce]

    def admitted(self, nonce: str) -> None:
        """The broker was admitted."""
        now = self._environment.clock.now()
        del self._comes_again[nonce]
        self._comes_again = {one: at for one, at in self._comes_again.items() if at > now}

    # --- questions -----------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Whether the register still waits for brokers before it decides anything."""
        now = self._environment.clock.now()
        comes_again = any(until > now for until in self._comes_again.values())
        return not self._is_over.is_set() or self._joins_held > 0 or comes_again

    def require_over(self) -> None:
        """Refuse what can't be known or decided yet.

        Raises:
          NotReadyError: while the register waits for brokers.
        """
        if self.is_under_way:
            raise NotReadyError("the register has just started and listens to brokers first")

    def require_learned(self) -> None:
        """Refuse to answer that a topic doesn't exist while no broker has joined: the register's
        disk may be new, and brokers may know the topic.

        Raises:
          NotReadyError, RefusedError: if it is so.
        """
        self.require_over()
        if not self._controller.state.cluster:
            raise RefusedError("no broker has joined", Status.NO_BROKER)
