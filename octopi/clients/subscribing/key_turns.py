"""Deliveries of a queue to a member, and which of them the program may take now.

Where messages of a key are in order, one is handed out when those of its key before it are
answered.  Pure.
"""

from __future__ import annotations

from collections import deque

import attrs

from octopi.identifiers import Offset
from octopi.record import Message


@attrs.define(eq=False)
class OpenDelivery:
    """One dealing of a message to this member."""

    offset: Offset
    attempt: int
    size_bytes: int
    attachment: int
    """Which attachment it came with."""
    dealt_at: float
    since: float
    """When it was dealt, or extended last."""
    key: bytes | None = None
    """What it has to wait for; None: nothing."""
    is_extended: bool = False
    message: Message | None = None
    """For whoever hands it out."""
    has_key: bool = False
    """Whether it is in the program's hands, and those of its key wait for it."""
    is_next: bool = False
    """Whether it waited for its key, and may be taken now."""
    is_taken: bool = False
    """Whether the program has it."""
    is_answered: bool = False
    is_void: bool = False
    """Whether the leader has said that it counts no more."""


@attrs.define
class _KeyTurn:
    """Of a key that the program is working on."""

    taken_count: int = 0
    """Messages in its hands, and those that it gave back, as long as the leader may not know."""
    behind: deque[OpenDelivery] = attrs.field(factory=deque)
    """Those that wait for them."""


class WaitingDeliveries:
    """Deliveries that the program has not taken.

    Invariant: those that wait behind others of their key wait for one that the program has, or that
    is next.
    """

    def __init__(self) -> None:
        self._ready: deque[OpenDelivery] = deque()
        """Those that may be taken, or have not been looked at.  Some may be void."""
        self._turns: dict[bytes, _KeyTurn] = {}
        """Of each key that has a message in the program's hands, or one that is next."""

    def add(self, deliveries: list[OpenDelivery]) -> None:
        """More of them."""
        self._ready.extend(deliveries)

    def clear(self) -> None:
        """All of them are void."""
        self._ready.clear()
        self._turns.clear()

    def take(self) -> OpenDelivery | None:
        """The next one for the program; None: there is none."""
        while self._ready:
            delivery = self._ready.popleft()
            if self._has_turn(delivery):
                self._hand_out(delivery)
                return delivery
        return None

    def take_all(self) -> list[OpenDelivery]:
        """All that one task may have, also several of a key."""
        taken: list[OpenDelivery] = []
        keys: set[bytes] = set()
        while self._ready:
            delivery = self._ready.popleft()
            key = delivery.key
            if key in keys and not delivery.is_void:
                found = [delivery]
            elif self._has_turn(delivery):
                found = [delivery]
                if key is not None:
                    keys.add(key)
                    behind = self._turns[key].behind
                    found += [one for one in behind if not one.is_void]
                    behind.clear()
            else:
                continue
            for one in found:
                self._hand_out(one)
            taken += found
        return taken

    def ended(self, delivery: OpenDelivery) -> None:
        """It is answered, or void."""
        key = delivery.key
        if key is None:
            return
        if delivery.has_key:
            delivery.has_key = False
            self.let_go(key)
        elif delivery.is_next:
            delivery.is_next = False
            if not self._turns[key].taken_count:
                self._next_of_key(key)

    def hold(self, key: bytes) -> None:
        """Hand out nothing of a key, until `let_go` was called as often."""
        self._turns.setdefault(key, _KeyTurn()).taken_count += 1

    def let_go(self, key: bytes) -> None:
        """See `hold`."""
        turn = self._turns[key]
        turn.taken_count -= 1
        if not turn.taken_count:
            self._next_of_key(key)

    def _has_turn(self, delivery: OpenDelivery) -> bool:
        """Whether it may be taken now; else it waits for its key, or is void."""
        key = delivery.key
        if delivery.is_void:
            return False
        if key is None or delivery.is_next:
            return True
        turn = self._turns.get(key)
        if turn is None:
            self._turns[key] = _KeyTurn()
            return True
        turn.behind.append(delivery)
        return False

    def _hand_out(self, delivery: OpenDelivery) -> None:
        delivery.is_taken, delivery.is_next = True, False
        if delivery.key is not None:
            delivery.has_key = True
            self._turns[delivery.key].taken_count += 1

    def _next_of_key(self, key: bytes) -> None:
        behind = self._turns[key].behind
        while behind:
            one = behind.popleft()
            if not one.is_void:
                one.is_next = True
                self._ready.appendleft(one)
                return
        del self._turns[key]

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        for key, turn in self._turns.items():
            is_next = any(one.is_next and one.key == key for one in self._ready)
            assert turn.taken_count or is_next, "those behind wait for nothing"
