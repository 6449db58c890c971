"""The port through which a broker has answered what it doesn't answer itself."""

from __future__ import annotations

from typing import Protocol

from octopi.roles.broker.peer_connection import AskingClient
from octopi.transport.pending_requests import Numbered


class DeciderAsks(Protocol):
    """Whoever decides about topics, partitions and brokers, or the way there."""

    async def ask(self, message: Numbered, client: AskingClient) -> bytes:
        """Have *message* of *client* answered, once; return the answer, encoded, which may be a
        `Failure`.

        Raises:
          NotReadyError: if nobody was asked.
          RefusedError: ANSWER_LOST, if somebody was asked and no answer came; or why it is not
              looked at.
        """
