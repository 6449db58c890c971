"""Pipes for blocking programs."""

from __future__ import annotations

from octopi.blocking.wrapping import BlockingWrapper, calling
from octopi.clients.piping.pipe import Pipe
from octopi.record import Message


class BlockingPipe(BlockingWrapper[Pipe]):
    """Processes the messages of one topic, and sends what comes of it to another one; see
    `octopi.Pipe`, whose methods these are.  Made by `octopi.blocking.Client.pipe`; for one thread
    at a time."""

    __slots__ = ()

    @property
    def topic(self) -> str:
        """That of the input."""
        return self._inner.topic

    @property
    def name(self) -> str:
        """That of the subscription."""
        return self._inner.name

    @property
    def into(self) -> str:
        """The topic of the output."""
        return self._inner.into

    @property
    def claims(self) -> dict[int, int]:
        """Partition -> claim, of the logs of the input that this member has."""
        return self._thread.ask(lambda: self._inner.claims)

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest messages heard of, in all (bytes)."""
        return self._thread.ask(lambda: self._inner.lag)

    def __iter__(self) -> BlockingPipe:
        return self

    def __next__(self) -> Message:
        return self._thread.call(self._inner.__anext__)

    send = calling(Pipe.send)
    commit = calling(Pipe.commit)
