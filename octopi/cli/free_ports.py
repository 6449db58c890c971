"""Ports for servers that may be started again at the same address."""

from __future__ import annotations

import random
import socket
from typing import Final

_PORTS: Final = range(20_000, 32_000)
"""Below those that Linux gives to programs that connect (32768 and above, see `ip(7)`): none of
them takes a server's port while that is down."""


def free_ports(count: int) -> list[int]:
    """*count* ports of this machine where no program listens."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)
        if port not in found and _is_free(port):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def free_ports_in_a_row(count: int) -> list[int]:
    """*count* ports, each the next one of the one before, where no program listens."""
    while True:
        first = free_ports(1)[0]
        ports = list(range(first, first + count))
        if all(map(_is_free, ports)):
            return ports


def free_port() -> int:
    """A port of this machine where no program listens."""
    return free_ports(1)[0]
