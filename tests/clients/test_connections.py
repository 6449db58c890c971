"""Where a client's token goes, and where it doesn't."""

from __future__ import annotations

import select

import pytest
import trio

from octopi.clients.connections import Connections
from octopi.clients.credentials import Credentials
from octopi.errors import UnreachableError
from tests.kit.cluster import system_environment


async def test_a_token_that_was_shown_over_tls_is_shown_nowhere_else() -> None:
    """Such as to an address without TLS that a broker of the cluster advertises."""
    [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    async with listener, trio.open_nursery() as nursery:
        here = system_environment(nursery)
        connections = Connections(here, nursery, "test", Credentials("secret"))
        with pytest.raises(UnreachableError, match="no node answers"):
            await connections.get("wss://127.0.0.1:1")
        with pytest.raises(UnreachableError, match="it gets no token"):
            await connections.get(f"ws://127.0.0.1:{port}")
        waiting = select.poll()  # `select.select` takes no descriptor beyond 1,023
        waiting.register(listener.socket.fileno(), select.POLLIN)
        assert waiting.poll(0) == [], "nobody came"
