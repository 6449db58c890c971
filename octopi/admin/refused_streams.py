"""What answers HTTP requests for streams at a node that serves none."""

from __future__ import annotations

from octopi.errors import RefusedError, Status
from octopi.roles.streams.exchange import StreamCaller, problem_answer
from octopi.transport.http_requests import HttpAnswer, HttpRequest


class RefusedStreams:
    """Refuses all requests for streams."""

    def __init__(self, why: str) -> None:
        """*why*: is told to who asks."""
        self._why = why

    async def answer(self, request: HttpRequest, caller: StreamCaller) -> HttpAnswer:
        """See `StreamService`."""
        return problem_answer(RefusedError(self._why, Status.INVALID_OPTION))
