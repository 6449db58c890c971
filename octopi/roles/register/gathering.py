"""The time after its start in which a register listens to brokers before it decides anything."""

from __future__ import annotations

import trio

from octopi.coordination.controller import Controller
from octopi.environment import Environment
from octopi.errors import NotReadyError, RefusedError, Status
from octopi.limits import GATHER_S
from octopi.roles.register.register_tracer import RegisterTracer


class Gathering:
    """Waits for brokers: what the journal doesn't know, because it is new or because the register
    was ended while it learned it again, they do."""

    def __init__(
        self, environment: Environment, controller: Controller, tracer: RegisterTracer
    ) -> None:
        self._environment = environment
        self._controller = controller
        self._tracer = tracer
        self._is_over = trio.Event()
        self._joins_held = 0
        """Brokers that came before it may decide, and are not in yet."""
        self._comes_again: dict[str, float] = {}
        """Brokers that could not be let in as the journal did not take it, by the nonces of their
        lives, and until when they are expected to come again: what they told counts for nothing
        yet, and may be what somebody asks for."""
        self._all_came = trio.Event()

    async def run(self, seconds: float) -> None:
        """Let brokers come first, at most so long."""
        with self._environment.clock.timeout(seconds):
            await self._all_came.wait()
        self._tracer.gathered(self._controller.state.cluster)
        self._is_over.set()

    def all_came(self) -> None:
        """Every broker of the journal has joined."""
        self._all_came.set()

    async def wait(self) -> None:
        """Wait, with a broker that asks to join, until the register may decide."""
        self._joins_held += 1
        try:
            await self._is_over.wait()
        finally:
            self._joins_held -= 1

    # --- brokers that are being let in ---------------------------------------------------

    def expect(self, nonce: str) -> None:
        """A broker is about to be let in; if that fails, it comes again."""
        self._comes_again[nonce] = self._environment.clock.now() + GATHER_S

    def forget(self, nonce: str) -> None:
        """That broker was refused: it is not expected."""
        del self._comes_again[nonce]

    def admitted(self, nonce: str) -> None:
        """That broker is in."""
        now = self._environment.clock.now()
        del self._comes_again[nonce]
        self._comes_again = {one: at for one, at in self._comes_again.items() if at > now}

    # --- questions -----------------------------------------------------------------------

    @property
    def is_under_way(self) -> bool:
        """Whether the register still listens to brokers before it decides anything."""
        now = self._environment.clock.now()
        comes_again = any(until > now for until in self._comes_again.values())
        return not self._is_over.is_set() or self._joins_held > 0 or comes_again

    def require_over(self) -> None:
        """Refuse what can't be known or decided yet.

        Raises:
          NotReadyError: while the register listens to brokers first.
        """
        if self.is_under_way:
            raise NotReadyError("the register has just started and listens to brokers first")

    def require_learned(self) -> None:
        """Refuse to say that there is no such topic while no broker has told this register of any:
        its disk may be a new one, and brokers know.

        Raises:
          NotReadyError, RefusedError: if it is so.
        """
        self.require_over()
        if not self._controller.state.cluster:
            raise RefusedError("no broker has joined", Status.NO_BROKER)
