"""Pipes for asyncio programs."""

from __future__ import annotations

from octopi.aio.wrapping import Wrapper, calling
from octopi.clients.piping.pipe import Pipe
from octopi.record import Message


class AsyncioPipe(Wrapper[Pipe]):
    """Processes the messages of one topic, and sends what comes of it to another one; see
    `octopi.Pipe`, whose methods these are.  Made by `octopi.aio.Client.pipe`; for one task at a
    time."""

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
        return self._inner.claims

    @property
    def lag(self) -> int:
        """How far the marks are behind the newest messages heard of, in all (bytes)."""
        return self._inner.lag

    def __aiter__(self) -> AsyncioPipe:
        return self

    async def __anext__(self) -> Message:
        return await self._run.call(self._inner.__anext__)

    send = calling(Pipe.send)
    commit = calling(Pipe.commit)
