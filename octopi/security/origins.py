"""Decides which web pages may connect to a node through a user's browser.

A browser sends the requests of any page from inside its own network, and names the page in
``Origin``.  So the origin has to be one of the cluster's.  If the node requires no token, ``Host``
also has to name the node: a page whose host name was pointed at the node (DNS rebinding) has the
node's origin for the browser, but can't hide that name.

This module only compares text.  Programs other than browsers can send any origin; only tokens tell
them apart.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final
from urllib.parse import urlsplit

import attrs

_DEFAULT_PORTS: Final = {"http": 80, "ws": 80, "https": 443, "wss": 443}

_LOOPBACK: Final = "localhost"

LOOPBACK_ORIGINS: Final = ("http://localhost:*", "http://127.0.0.1:*")
"""The pages that programs on the browser's own machine serve, at any port."""

_ANY_PORT: Final = ":*"


@attrs.frozen
class HostPort:
    """A canonical host and port: equal addresses compare equal."""

    host: str
    port: int


def place_of(url: str) -> HostPort | None:
    """Host and port of *url* (``scheme://host[:port]``); None if it has no valid ones."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.hostname or parts.scheme not in _DEFAULT_PORTS:
        return None
    return HostPort(_canonical(parts.hostname), port or _DEFAULT_PORTS[parts.scheme])


def allowed_place(origin: str) -> HostPort | None:
    """Host and port of an allowed *origin*, which may be one of every port (``http://host:*``; the
    port is then meaningless); None if it is none."""
    place = place_of(origin.removesuffix(_ANY_PORT))
    return None if place is None or "*" in place.host else place


def may_come_from(
    origin: str, host: str, *, is_secure: bool, members: Iterable[str], allowed: Iterable[str]
) -> bool:
    """Whether a page of *origin* may connect to the node that it calls *host*: it is a page of that
    node, of another node of the cluster (*members*: urls), or an *allowed* origin, such as
    ``https://app.example`` or, for every port, ``http://localhost:*``."""
    page = place_of(origin)
    if page is None:  # such as "null", of a page that was opened as a file
        return False
    own = place_of(f"{'https' if is_secure else 'http'}://{host}")
    if page == own or any(page == place_of(member) for member in members):
        return True
    scheme = urlsplit(origin).scheme
    return any(_is_allowed(page, scheme, one) for one in allowed)


def _is_allowed(page: HostPort, scheme: str, allowed: str) -> bool:
    place = allowed_place(allowed)
    if place is None or not allowed.lower().startswith(f"{scheme}://"):
        return False
    return page.host == place.host if allowed.endswith(_ANY_PORT) else page == place


def names_us(host: str, members: Iterable[str], allowed: Iterable[str]) -> bool:
    """Whether *host*, from a browser's request, is safe from DNS rebinding: a loopback name, an IP
    address, or a host of *members* or *allowed* (urls)."""
    place = place_of(f"http://{host}")
    if place is None:
        return False
    if place.host == _LOOPBACK or _is_address(place.host):
        return True
    known = (*map(place_of, members), *map(allowed_place, allowed))
    return any(one is not None and one.host == place.host for one in known)


def is_loopback(host: str) -> bool:
    """Whether *host* is an address that only programs of this machine reach."""
    return _canonical(host) == _LOOPBACK


def _canonical(host: str) -> str:
    name = host.lower().strip("[]").removesuffix(".")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return name
    return _LOOPBACK if address.is_loopback else str(address)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
