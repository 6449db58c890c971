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


def may_come_from(
    origin: str, host: str, *, is_secure: bool, members: Iterable[str], allowed: Iterable[str]
) -> bool:
    """Whether a page of *origin* may connect to the node that it calls *host*: it is a page of that
    node, of another node of the cluster (*members*: urls), or an *allowed* origin."""
    page = place_of(origin)
    if page is None:  # such as "null", of a page that was opened as a file
        return False
    own = place_of(f"{'https' if is_secure else 'http'}://{host}")
    if page == own or any(page == place_of(member) for member in members):
        return True
    scheme = urlsplit(origin).scheme
    return any(page == place_of(one) and scheme == urlsplit(one).scheme for one in allowed)


def names_us(host: str, members: Iterable[str], allowed: Iterable[str]) -> bool:
    """Whether *host*, from a browser's request, is safe from DNS rebinding: a loopback name, an IP
    address, or a host of *members* or *allowed* (urls)."""
    place = place_of(f"http://{host}")
    if place is None:
        return False
    if place.host == _LOOPBACK or _is_address(place.host):
        return True
    known = (place_of(one) for one in (*members, *allowed))
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
