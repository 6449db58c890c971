"""Composes a node for production: environment, security, pages and listeners of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Final

import attrs
import trio

from octopi import __version__
from octopi.admin.cluster_watch import ClusterWatch
from octopi.admin.metrics_site import MetricsSite
from octopi.admin.node_views import NodeView
from octopi.admin.site import Site
from octopi.cli.config import NodeSettings
from octopi.cli.failures import PROGRAM
from octopi.cli.garbage import collect_garbage
from octopi.cli.node_security import NodeSecurity, protection
from octopi.clients.credentials import Credentials
from octopi.console.static_files import console_file
from octopi.environment import Environment, Link
from octopi.history.writer import HistoryAccess
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
"""Connections to the listener that serves only metrics, at most."""

AGENT: Final = f"{PROGRAM}/{__version__}"


class NodePlace:
    """The environment and the pages of one node; also serves as the node's task status."""

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
        self.history: Callable[[HistoryAccess], Awaitable[None]] | None = None
        """Writes the node's history once it is ready; None: it writes none."""

    def show(self, node: NodeView) -> None:
        """Serve the pages of *node*, which exists but is not ready yet."""
        self._site.node = node
        if self.shelter.authenticator is not None:
            self.shelter.authenticator.cluster = lambda: node.facts().cluster

    def started(self, url: str | None = None) -> None:
        """Report that the node is ready at *url* (the task status protocol)."""
        assert url is not None
        node = self._site.node
        assert node is not None, "show() comes before started()"
        self._site.url = url
        self._site.watch = ClusterWatch(
            self.environment,
            lambda: node.facts().registers or [url],
            AGENT,
            Credentials(self.shelter.token, self._secrets),
            in_ring=node.facts().in_ring,
        )
        self._nursery.start_soon(self._site.watch.run)
        if self.history is not None:
            # As for the pages: a broker may not reach the address that it advertises.
            servers = [*node.facts().registers, url]
            access = HistoryAccess(self.environment, servers, self.shelter.token, self._secrets)
            self._nursery.start_soon(self.history, access)
        self._ready(url)


@asynccontextmanager
async def place_for_node(
    settings: NodeSettings,
    role: str,
    listen: str,
    ready: Callable[[str], None],
    secrets: SecretSource,
) -> AsyncIterator[NodePlace]:
    """The environment of one node in *role* that listens at *listen*, for the block.

    *ready* is called with the node's url.  *secrets* authenticate the requests of the node's
    pages to other nodes.

    Raises:
      CommandError, InvalidOptionError: if the settings contradict each other.
      UnreachableError: if the node can't listen at the address for metrics.
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
        site.open_stream = net.open_stream
        disk = SystemDisk()
        here = Environment(clock, net, disk, SystemRandomness(), stopwatch=stopwatch)
        keep_freed_memory()
        nursery.start_soon(collect_garbage)
        with closing(disk), _traced(here, settings.trace, role, listen) as observed:
            yield NodePlace(observed, shelter, site, nursery, ready, secrets)
        nursery.cancel_scope.cancel()


@contextmanager
def _traced(environment: Environment, given: str, role: str, listen: str) -> Iterator[Environment]:
    """*environment*, with all that the node does written to the file or the directory *given*;
    empty: nothing is written."""
    if not given:
        yield environment
        return
    from octopi.cli.trace_file import TraceFile, trace_path
    from octopi.transport.traced_net import TracedNet

    file = TraceFile(trace_path(given, role, listen), environment.clock, role, listen)
    with closing(file):
        net = TracedNet(environment.net, file)
        yield attrs.evolve(environment, net=net, trace=file.step)


async def _nobody(link: Link) -> None:
    """The listener for metrics serves no endpoint."""
