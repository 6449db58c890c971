"""The nodes that a client may ask about topics, partitions and brokers: all nodes of the cluster.

A register answers by itself; a broker passes the question on.  The client asks the nodes that it
was given, one until it doesn't answer, then the next.  Brokers that it learnt of from answers are
asked when none of those that it was given answered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from octopi.limits import ENTRANCE_SILENCE_S, ENTRANCES_LEARNED_MAX


class Entrances:
    """The addresses of one client, and which of them to ask next."""

    def __init__(self, given: Sequence[str]) -> None:
        """*given*: addresses of nodes, at least one."""
        self._given = deque(given)
        self._learned: deque[str] = deque()
        self._given_failures = 0
        """How many given nodes failed, one after the other, since a node answered or since each
        learned one was tried."""
        self._learned_failures = 0
        self._silence_s = ENTRANCE_SILENCE_S

    @property
    def current(self) -> str:
        """The address to ask."""
        if self._learned and self._given_failures >= len(self._given):
            return self._learned[0]
        return self._given[0]

    @property
    def patience_s(self) -> float | None:
        """How long (s) to wait for an answer that another node could give as well; None: there is
        no other node."""
        if len(self._given) + len(self._learned) == 1:
            return None
        return self._silence_s

    def learn(self, addresses: Iterable[str]) -> None:
        """Brokers are at *addresses*."""
        for address in addresses:
            if address and address not in self._given and address not in self._learned:
                if len(self._learned) == ENTRANCES_LEARNED_MAX:
                    self._learned.pop()
                self._learned.append(address)

    def answered(self) -> None:
        """The current node answered."""
        self._silence_s = ENTRANCE_SILENCE_S
        self._learned_failures = 0
        if self._given_failures < len(self._given):
            self._given_failures = 0

    def redirected(self, address: str, active: str) -> None:
        """The register at *address* is a standby of the one at *active*; empty: of none that it
        knows."""
        self.learn([active])
        self.failed(address)
        if active in self._given:
            self._given.rotate(-self._given.index(active))

    def failed(self, address: str, *, was_silent: bool = False) -> None:
        """The node at *address* can't answer now: ask another one next, if there is one.
        *was_silent*: it gave no answer in time."""
        if address != self.current:
            return  # another request has found that out before
        if self._given_failures < len(self._given):
            self._given.rotate(-1)
            self._given_failures += 1
            if self._given_failures < len(self._given) or self._learned:
                return
        else:
            self._learned.rotate(-1)
            self._learned_failures += 1
            if self._learned_failures < len(self._learned):
                return
        # Each node was tried: begin with the given ones again.
        self._given_failures = self._learned_failures = 0
        if was_silent:
            self._silence_s *= 2
