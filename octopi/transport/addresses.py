"""Addresses as people write them: ``host:port`` to listen at, ``ws://host:port`` to reach.

This module only parses and writes text; it doesn't ask the network whether a node is there.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from octopi.errors import InvalidOptionError

_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_HOST_NAME: Final = re.compile(r"(?!.{254})([A-Za-z0-9_-]{1,63}(\.|$))+", re.ASCII)


def listen_address(address: str) -> tuple[str, int]:
    """Host and port of *address*: ``host:port``, ``[::1]:port`` or ``:port`` for every
    address of the machine.

    Raises:
      InvalidOptionError: if it is none of these.
    """
    return _split(address, f"{address!r} is no address to listen at: write host:port")


def server_address(url: str) -> tuple[str, int]:
    """Host and port of the *url* of a node: ``ws://host:port`` or ``wss://host:port``.

    Raises:
      InvalidOptionError: if it is no such url.
    """
    wanted = f"{url!r} is no address of a node: write ws://host:port or wss://host:port"
    scheme, separator, rest = url.partition("://")
    if scheme not in {"ws", "wss"} or not separator:
        raise InvalidOptionError(wanted)
    host, port = _split(rest.removesuffix("/"), wanted)
    if not host or not port:
        raise InvalidOptionError(wanted)
    return host, port


def is_secure(url: str) -> bool:
    """Whether *url* asks for TLS (``wss://``)."""
    return url.startswith("wss:")


def server_url(host: str, port: int, *, secure: bool = False) -> str:
    """The url at which programs on this machine reach the node that listens at *host* and *port*.

    A wildcard such as ``0.0.0.0`` becomes ``localhost``.
    """
    scheme = "wss" if secure else "ws"
    return f"{scheme}://{host_and_port('localhost' if host in _WILDCARDS else host, port)}"


def host_and_port(host: str, port: int) -> str:
    """``host:port``, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(text: str, wanted: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        port = parts.port
    except ValueError:  # a port out of range, or brackets around what is no address
        raise InvalidOptionError(wanted) from None
    host = parts.hostname or ""
    if port is None or parts.netloc != text or "@" in text or not _is_host(host):
        raise InvalidOptionError(wanted)
    return host, port


def _is_host(host: str) -> bool:
    if not host or _HOST_NAME.fullmatch(host):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
