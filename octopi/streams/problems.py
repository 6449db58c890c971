"""Requests that are refused, with the status of the table and further headers of the answer."""

from __future__ import annotations

from octopi.errors import STATUS_MEANINGS, OctopiError, Status

Headers = tuple[tuple[str, str], ...]


class StreamProblem(OctopiError):
    """A request of a stream is refused."""

    def __init__(
        self, reason: str, status: Status, *headers: tuple[str, str], http: int | None = None
    ) -> None:
        """*headers* of the answer.  *http*: the status code, if the protocol of streams wants
        another one than the status table has."""
        super().__init__(reason)
        self.status = status
        self.headers: Headers = headers
        self.http = STATUS_MEANINGS[status].http if http is None else http


def invalid(reason: str) -> StreamProblem:
    """The request itself is wrong: 400."""
    return StreamProblem(reason, Status.INVALID_OPTION)


def conflict(reason: str, *headers: tuple[str, str]) -> StreamProblem:
    """The stream is another one than the request assumes: 409."""
    return StreamProblem(reason, Status.INVALID_OPTION, *headers, http=409)


def deleted(topic: str) -> StreamProblem:
    """The stream was deleted, and there are forks of it: 410."""
    return StreamProblem(f"stream {topic} was deleted", Status.UNKNOWN_TOPIC, http=410)


def unknown(topic: str) -> StreamProblem:
    """There is no such stream, or it has expired: 404."""
    return StreamProblem(f"there is no stream {topic}", Status.UNKNOWN_TOPIC)
