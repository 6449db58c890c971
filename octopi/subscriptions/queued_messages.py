"""The messages behind the mark of a queue, and what has happened to each of them."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from hashlib import sha256
from typing import Final

import attrs

from octopi.identifiers import Offset
from octopi.subscriptions.effects import Session

KEY_BYTES_MAX: Final = 32
"""A longer key is remembered by its digest."""


@attrs.frozen
class ReadMessage:
    """A committed message of a log, as its queue gets to know it."""

    offset: Offset
    end: Offset
    """Where its record ends."""
    key: bytes | None = None


class MessageState(Enum):
    """Where a message is on its way through a queue."""

    NEW = auto()
    """It was never dealt, as far as this leader knows."""
    OPEN = auto()
    """It is dealt to a member, which has not answered."""
    WAITING = auto()
    """It was given back, and is to be dealt again."""
    SPENT = auto()
    """It is given up, and gets a number among the dead letters next."""
    DYING = auto()
    """It has its number, and its dead letter is not known to be committed."""
    SETTLED = auto()
    """Nothing is to be done with it any more."""


@attrs.define(eq=False)
class QueuedMessage:
    """A message behind the mark."""

    offset: Offset
    end: Offset
    line: KeyLine | None = None
    """The unsettled messages of its key, where keys are in order."""
    state: MessageState = MessageState.NEW
    attempt: int = 0
    """How often it was dealt."""
    uncounted: int = 0
    """So many of these deliveries ended because an earlier message of its key was given back."""
    is_answered: bool = False
    """Whether its member has answered it, though that didn't count."""
    is_unseen: bool = False
    """Whether its member, which is gone, never gave it to a program; then the delivery doesn't
    count."""
    is_known: bool = True
    """Whether that is committed; where it is not, it isn't dealt again."""
    session: Session = 0
    """The member that it was dealt to last."""
    until: float = 0.0
    """While it is open: when it is given up waiting for the member's answer; while it waits: when
    it may be dealt again."""
    reason: str = ""
    """Why it is given up."""

    @property
    def size_bytes(self) -> int:
        """Of its record."""
        return self.end - self.offset

    @property
    def counted(self) -> int:
        """How many deliveries count when it is to be given up."""
        return self.attempt - self.uncounted

    @property
    def is_next(self) -> bool:
        """Whether no earlier unsettled message of its key is without a member."""
        line = self.line
        return line is None or bool(line.rest and line.rest[0] is self)

    @property
    def is_first(self) -> bool:
        """Whether all earlier messages of its key are settled."""
        line = self.line
        if line is None:
            return True
        return (line.opened or line.rest)[0] is self


class KeyLine:
    """The unsettled messages of one key, in the order of the log: first those that are open, all at
    one member, then the others."""

    __slots__ = ("key", "opened", "rest")

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.opened: deque[QueuedMessage] = deque()
        self.rest: deque[QueuedMessage] = deque()

    def remove_first(self) -> None:
        """The first message is settled."""
        (self.opened or self.rest).popleft()

    def close_from(self, message: QueuedMessage) -> list[QueuedMessage]:
        """*message*, which is open, and all open ones behind it have no member any more: these, the
        last one first."""
        closed = []
        while True:
            last = self.opened.pop()
            self.rest.appendleft(last)
            closed.append(last)
            if last is message:
                return closed

    def __len__(self) -> int:
        return len(self.opened) + len(self.rest)


class KeyLines:
    """The lines of all keys that have unsettled messages behind the mark."""

    def __init__(self) -> None:
        self._lines: dict[bytes, KeyLine] = {}

    def add(self, message: QueuedMessage, key: bytes) -> None:
        """*message* is the newest one of *key*."""
        if len(key) > KEY_BYTES_MAX:
            key = b"#" + sha256(key).digest()
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = KeyLine(key)
        message.line = line
        line.rest.append(message)

    def forget_if_empty(self, line: KeyLine) -> None:
        """Nothing of a key is unsettled, perhaps."""
        if not line:
            del self._lines[line.key]

    def check_invariants(self) -> None:
        """Assert what the classes promise."""
        for line in self._lines.values():
            assert len(line)
            assert len({one.session for one in line.opened}) <= 1
            assert all(one.state is MessageState.OPEN for one in line.opened)
            assert all(one.state is not MessageState.OPEN for one in line.rest)
            offsets = [one.offset for one in [*line.opened, *line.rest]]
            assert offsets == sorted(offsets)
