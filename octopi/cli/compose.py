"""Where production is wired: the one place that joins the seam to this machine."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import trio

from octopi import __version__
from octopi.admin.cluster_watch import ClusterWatch
from octopi.admin.metrics_site import MetricsSite
from octopi.admin.node_views import NodeView
from octopi.admin.site import Site
from octopi.cli.config import NodeSettings
from octopi.cli.failures import PROGRAM
from octopi.cli.node_security import NodeSecurity, protection
from octopi.clients.credentials import Credentials
from octopi.console.static_files import console_file
from octopi.environment import Environment, Link
from octopi.logger import get_logger
from octopi.operating_system import (
    SystemClock,
    SystemDisk,
    SystemRandomness,
    SystemStreams,
    connections_possible,
    keep_freed_memory,
    stopwatch,
    wants_plain_websocket,
)
from octopi.security.join_secret import SecretSource
from octopi.transport.websocket import WebSocketNet

_log = get_logger(__name__)

_SCRAPERS_MAX: Final = 16
"""Connections to the listener for metrics alone."""

AGENT: Final = f"{PROGRAM}/{__version__}"


class NodePlace:
    """This machine for one node, with its pages; also the node's task status."""

    def __init__(
        self,
        environment: Environment,
        shelter: NodeSecurity,
        site: Site,
        nursery: trio.Nursery,
        ready: Callable[[str], None],
        secrets: SecretSource,
    ) -> None:
        self.environment = environment
        self._secrets = secrets
        self.shelter = shelter
        self._site = site
        self._nursery = nursery
        self._ready = ready

    def show(self, node: NodeView) -> None:
        """The node exists."""
        self._site.node = node
        if self.shelter.authenticator is not None:
            self.shelter.authenticator.cluster = lambda: node.facts().cluster

    def started(self, url: str | None = None) -> None:
        """The node can be used, at *url*."""
        assert url is not None
        node = self._site.node
        assert node is not None, "a node is shown before it is ready"
        self._site.url = url
        self._site.watch = ClusterWatch(
            self.environment,
            lambda: node.facts().registers or [url],
            AGENT,
            Credentials(self.shelter.token, self._secrets),
        )
        self._nursery.start_soon(self._site.watch.run)
        self._ready(url)


@asynccontextmanager
async def place_for_node(
    settings: NodeSettings, listen: str, ready: Callable[[str], None], secrets: SecretSource
) -> AsyncIterator[NodePlace]:
    """This machine for one node that listens at *listen*, for the block; *ready* gets its url.
    What its pages tell of other nodes it asks them with *secrets*.

    Raises:
      CommandError, InvalidOptionError: if the settings don't go together.
      UnreachableError: if the address for metrics can't be had.
    """
    shelter = protection(settings, listen)
    clock, streams = SystemClock(), SystemStreams()
    site = Site(clock, console_file, shelter.access)
    async with trio.open_nursery() as nursery:
        plain = wants_plain_websocket()
        net = WebSocketNet(
            streams,
            clock,
            nursery,
            connections_max=connections_possible(),
            site=site,
            plain=plain,
            tls=shelter.tls,
            stopwatch=stopwatch,
        )
        if settings.metrics_listen:
            beside = WebSocketNet(
                streams,
                clock,
                nursery,
                connections_max=_SCRAPERS_MAX,
                site=MetricsSite(site),
                stopwatch=stopwatch,
            )
            listen_beside = partial(
                beside.listen,
                settings.metrics_listen,
                _nobody,
                paths=frozenset(),
                handler_nursery=nursery,
            )
            url: str = await nursery.start(listen_beside)
            _log.info("metrics", url=f"{url.replace('ws://', 'http://')}/metrics")
        here = Environment(clock, net, SystemDisk(), SystemRandomness(), stopwatch=stopwatch)
        keep_freed_memory()
        # What the program itself is made of lives as long as it does.  Each full collection would
        # look at it again, and keep all tasks waiting for some 30 ms.
        gc.collect()
        gc.freeze()
        yield NodePlace(here, shelter, site, nursery, ready, secrets)
        nursery.cancel_scope.cancel()


async def _nobody(link: Link) -> None:
    """No endpoint is served there."""
