"""Where production is wired: the one place that joins the seam to this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

import trio

from octopi.admin.cluster_watch import ClusterWatch
from octopi.admin.node_views import NodeView
from octopi.admin.site import Site
from octopi.cli.failures import PROGRAM
from octopi.console.static_files import console_file
from octopi.environment import Environment
from octopi.operating_system import (
    SystemChance,
    SystemClock,
    SystemDisk,
    SystemStreams,
    wants_plain_websocket,
)
from octopi.transport.http_front import HttpSite
from octopi.transport.websocket import WebSocketNet

AGENT: Final = f"{PROGRAM}/{version(PROGRAM)}"


@asynccontextmanager
async def environment(site: HttpSite | None = None) -> AsyncIterator[Environment]:
    """This machine, for the nodes that run within the block, with *site* on their ports."""
    clock = SystemClock()
    async with trio.open_nursery() as nursery:
        plain = wants_plain_websocket()
        net = WebSocketNet(SystemStreams(), clock, nursery, site=site, plain=plain)
        yield Environment(clock, net, SystemDisk(), SystemChance())
        nursery.cancel_scope.cancel()


class Pages:
    """Brings a node and its site together, as the node comes up; its task status."""

    def __init__(
        self,
        site: Site,
        here: Environment,
        nursery: trio.Nursery,
        ready: Callable[[str], None],
    ) -> None:
        self._site = site
        self._here = here
        self._nursery = nursery
        self._ready = ready

    def show(self, node: NodeView) -> None:
        """The node exists."""
        self._site.node = node

    def started(self, url: str | None = None) -> None:
        """The node can be used, at *url*."""
        assert url is not None
        node = self._site.node
        assert node is not None, "a node is shown before it is ready"
        self._site.url = url
        watch = ClusterWatch(
            self._here, lambda: node.facts().registers or [url], AGENT, lambda: None
        )
        self._site.watch = watch
        self._nursery.start_soon(watch.run)
        self._ready(url)


@asynccontextmanager
async def serving_pages(
    ready: Callable[[str], None],
) -> AsyncIterator[tuple[Environment, Pages]]:
    """This machine for one node that has its pages; *ready* gets the node's url."""
    site = Site(SystemClock(), console_file)
    async with environment(site) as here, trio.open_nursery() as nursery:
        yield here, Pages(site, here, nursery, ready)
        nursery.cancel_scope.cancel()
