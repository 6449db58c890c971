"""Nodes with their pages, in the test's own process: as `octopi-node` runs them."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import h11
import trio

from octopi.cli.broker_nodes import run_broker_node
from octopi.cli.config import BrokerSettings, NodeSettings, RegisterSettings, join_secret_in
from octopi.cli.register_nodes import run_register_node


@attrs.frozen
class Page:
    """What was answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401  # JSON is any of many types
        return json.loads(self.body)


async def ask(
    url: str,
    path: str,
    *,
    method: str = "GET",
    tls: ssl.SSLContext | None = None,
    **headers: str,
) -> Page:
    """Ask the node at *url* over HTTP; ``_`` in the name of a header is ``-``."""
    place = urlsplit(url)
    assert place.port is not None
    protocol = h11.Connection(h11.CLIENT)
    fields = {"host": place.netloc, "connection": "close"}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    with trio.fail_after(20):
        stream: trio.abc.Stream = await trio.open_tcp_stream(str(place.hostname), place.port)
        if tls is not None:
            stream = trio.SSLStream(
                stream, tls, server_hostname=place.hostname, https_compatible=True
            )
        async with stream:
            request = h11.Request(method=method, target=path, headers=list(fields.items()))
            await stream.send_all(protocol.send(request) or b"")
            return await _read(protocol, stream)


async def _read(protocol: h11.Connection, stream: trio.abc.Stream) -> Page:
    protocol.send(h11.EndOfMessage())
    status, found, body = 0, dict[str, str](), b""
    while True:
        event = protocol.next_event()
        match event:
            case h11.NEED_DATA:
                protocol.receive_data(bytes(await stream.receive_some()))
            case h11.InformationalResponse() if event.status_code == 101:
                return Page(101, {}, b"")
            case h11.Response():
                status = event.status_code
                for name, value in event.headers:
                    known = found.get(name.decode())
                    found[name.decode()] = f"{known}, {value.decode()}" if known else value.decode()
            case h11.Data():
                body += event.data
            case _:
                return Page(status, found, body)


@attrs.define
class Nodes:
    """A register and brokers, by their urls."""

    register: str
    brokers: list[str]


@asynccontextmanager
async def serving_nodes(
    directory: Path, brokers: int = 1, *, common: NodeSettings | None = None
) -> AsyncIterator[Nodes]:
    """A register and so many brokers, for the block, with *common* settings."""
    common = common or NodeSettings()
    async with trio.open_nursery() as nursery:
        stop = trio.Event()

        async def start(run: Any, settings: object, common: NodeSettings) -> str:  # noqa: ANN401
            urls: list[str] = []
            ready = trio.Event()

            def take(url: str) -> None:
                urls.append(url)
                ready.set()

            nursery.start_soon(partial(run, settings, common, stop, take))
            with trio.fail_after(20):
                await ready.wait()
            return urls[0]

        register = await start(
            run_register_node,
            RegisterSettings(
                listen="127.0.0.1:0", data_dir=str(directory / "register"), gather_s=0.0
            ),
            common,
        )
        nodes = Nodes(register, [])
        secret = common.join_secret or join_secret_in(str(directory / "register"))
        of_brokers = attrs.evolve(common, join_secret=secret)
        for number in range(1, brokers + 1):
            settings = BrokerSettings(register=register, data_dir=str(directory / f"b{number}"))
            nodes.brokers.append(await start(run_broker_node, settings, of_brokers))
        yield nodes
        nursery.cancel_scope.cancel()
