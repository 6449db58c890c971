"""The part of the client that opens pipes."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from octopi.clients.consuming.consumer_maker import ConsumerMaker
from octopi.limits import (
    CONSUMER_WINDOW_BYTES,
    DELIVERY_TIMEOUT_S,
    GROWN_BATCH_BYTES,
    RECONNECT_TIMEOUT_S,
)

if TYPE_CHECKING:
    from octopi.clients.piping.pipe import Pipe
    from octopi.clients.subscribing.administration import Creation


class PipeMaker(ConsumerMaker):
    """Opens pipes of one cluster."""

    def pipe(
        self,
        topic: str,
        name: str,
        *,
        into: str,
        mode: Literal["exclusive", "failover"] = "exclusive",
        member: str | None = None,
        create: Creation = "create_or_attach",
        start: Literal["earliest", "latest"] = "earliest",
        take_over: bool = False,
        from_mark: bool = False,
        batch_bytes: int = GROWN_BATCH_BYTES,
        session_timeout_s: float = 10.0,
        release_timeout_s: float = 10.0,
        expires: timedelta | None = timedelta(days=7),
        window_bytes: int = CONSUMER_WINDOW_BYTES,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        reconnect_timeout_s: float | None = RECONNECT_TIMEOUT_S,
    ) -> AbstractAsyncContextManager[Pipe]:
        """A member of the durable subscription *name* of *topic*, whose results go to the topic
        *into*, for the block: each result is stored once, whatever fails meanwhile.

        The results of each log of *topic* go to one log of *into*: of its first partition to the
        first partition there, and so on, in turn.  Both topics have to exist.  Leaving the block
        normally counts the message in hand as processed, and waits until all results are stored.
        Leaving it by an exception, or cancelled, drops what was sent for the message in hand.

        *from_mark*: if *into* doesn't tell any more how far the pipe was, go on at the mark of the
        subscription, behind which results may come twice; otherwise that is an error.
        *batch_bytes*: a request to *into* that has reached this size is full.
        *delivery_timeout_s*: how long a request to *into* is tried.  The other options are those of
        `subscription`.

        Raises:
          RefusedError: WRONG_KIND, if one of the topics is in memory.
          Also the errors of `subscription`.
        """
        from octopi.clients.piping.pipe import open_pipe

        return open_pipe(
            self._cluster,
            topic,
            name,
            into,
            mode=mode,
            member=member,
            create=create,
            start=start,
            from_mark=from_mark,
            batch_bytes=batch_bytes,
            session_timeout_s=session_timeout_s,
            release_timeout_s=release_timeout_s,
            expires=expires,
            window_bytes=window_bytes,
            delivery_timeout_s=delivery_timeout_s,
            reconnect_timeout_s=reconnect_timeout_s,
            **({"take_over": True} if take_over else {}),
        )
