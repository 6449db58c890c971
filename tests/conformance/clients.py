"""Which clients run the list.  A new one needs a driver, in a file of its own, and a line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from tests.browser.pages import browser
from tests.conformance import (
    aio_driver,
    blocking_driver,
    cli_driver,
    http_driver,
    javascript_driver,
    trio_driver,
)
from tests.conformance.driving import Driver
from tests.conformance.operating import Operator

Opening: TypeAlias = Callable[[str, Path], AbstractContextManager[Driver]]
"""Of the cluster at a url, with a directory for files."""


@attrs.frozen
class Client:
    """A client that runs the list."""

    open: Opening
    lacks: Mapping[str, str]
    """See `tests.conformance.driving.Driver`."""
    column: str
    """Its column in docs/clients.md; empty: it has none."""


@contextmanager
def _in_a_page(url: str, directory: Path) -> Iterator[Driver]:
    with browser() as chromium, javascript_driver.page_driver(url, chromium) as driver:
        yield driver


def _program(url: str, directory: Path) -> AbstractContextManager[Driver]:
    return cli_driver.cli_driver(url, directory, Operator(url).members)


CLIENTS: Final = {
    "trio": Client(lambda url, _: trio_driver.trio_driver(url), {}, "Trio"),
    "asyncio": Client(lambda url, _: aio_driver.aio_driver(url), {}, "asyncio"),
    "blocking": Client(lambda url, _: blocking_driver.blocking_driver(url), {}, "blocking"),
    "node": Client(
        lambda url, _: javascript_driver.node_driver(url), javascript_driver.LACKS, "octopi.js"
    ),
    "page": Client(_in_a_page, javascript_driver.LACKS, "octopi.js"),
    "cli": Client(_program, cli_driver.LACKS, ""),
    "http": Client(
        lambda url, _: http_driver.http_driver(url, "long-poll"), http_driver.LACKS, "HTTP"
    ),
    "http-events": Client(
        lambda url, _: http_driver.http_driver(url, "sse"), http_driver.LACKS, "HTTP"
    ),
}
"""By name.  Those with the same column lack the same."""
