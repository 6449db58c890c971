"""A web service that stores orders in a topic and shows them, with FastAPI and `octopi.aio`.

Run it beside ``octopi-node dev``, and order something::

    pip install fastapi uvicorn
    python docs/examples/fastapi_service.py

    curl --json '{"customer": "customer-7", "item": "umbrella"}' http://127.0.0.1:8000/orders
    curl 'http://127.0.0.1:8000/orders?limit=10'
    curl -N http://127.0.0.1:8000/orders/live

``OCTOPI_SERVER`` names another node, ``PORT`` another port, and ``PATIENCE_S`` how long a request
waits for a cluster that doesn't answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.responses import JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, Field

import octopi
import octopi.aio

SERVER = os.environ.get("OCTOPI_SERVER", "ws://127.0.0.1:7000")
PORT = int(os.environ.get("PORT", "8000"))
PATIENCE_S = float(os.environ.get("PATIENCE_S", "10"))
TOPIC = "orders"


class Order(BaseModel):
    """What a customer orders."""

    customer: str = Field(max_length=100)
    item: str = Field(max_length=1000)


class Placed(BaseModel):
    """Where an order is stored."""

    partition: int
    offset: int


class Page(BaseModel):
    """Some orders, and the position behind them: ``after`` of the next page."""

    orders: list[Order]
    next: str


@dataclass
class Log:
    """The one client and the one producer of all requests."""

    client: octopi.aio.Client
    producer: octopi.aio.Producer


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    """Everything is open before the first request, and closed behind the last one."""
    async with (
        octopi.aio.connect(SERVER, name="orders", request_timeout_s=PATIENCE_S) as client,
        client.producer(delivery_timeout_s=PATIENCE_S) as producer,
    ):
        app.state.log = Log(client, producer)
        yield


app = FastAPI(title="Orders", lifespan=lifespan)


def log_of_app(request: Request) -> Log:
    """The log of the application that answers *request*."""
    log: Log = request.app.state.log
    return log


OpenLog = Annotated[Log, Depends(log_of_app)]


@app.post("/orders", status_code=201)
async def place(order: Order, log: OpenLog) -> Placed:
    """Store an order; the answer is sent when it is committed."""
    receipt = await log.producer.send(
        TOPIC, order.model_dump_json().encode(), key=order.customer.encode()
    )
    return Placed(partition=receipt.partition, offset=receipt.offset)


@app.get("/orders")
async def read(
    log: OpenLog,
    after: str = "earliest",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Page:
    """The orders that are stored behind a position."""
    orders: list[Order] = []
    async with log.client.consumer(
        TOPIC, start=after, stop_at_end=True, create=True, reconnect_timeout_s=PATIENCE_S
    ) as consumer:
        async for message in consumer:
            orders.append(Order.model_validate_json(message.value))
            if len(orders) == limit:
                break
        return Page(orders=orders, next=str(consumer.position))


async def live_consumer(
    log: OpenLog, last_event_id: Annotated[str, Header()] = "latest"
) -> AsyncIterator[octopi.aio.Consumer]:
    """A consumer for as long as its page listens.  A browser that connects again sends the
    position of the last order that it got."""
    async with log.client.consumer(TOPIC, start=last_event_id, create=True) as consumer:
        yield consumer


@app.get("/orders/live", response_class=EventSourceResponse)
async def listen(
    consumer: Annotated[octopi.aio.Consumer, Depends(live_consumer)],
) -> AsyncIterator[ServerSentEvent]:
    """Orders as they come in, for `EventSource` in browsers."""
    while (message := await next_message(consumer)) is not None:
        yield ServerSentEvent(raw_data=message.value.decode(), id=str(consumer.position))


stopping = asyncio.Event()
"""Set when the server is told to end: it waits for all answers, and streams have no end."""


async def next_message(consumer: octopi.aio.Consumer) -> octopi.Message | None:
    """The next message; None when the server is told to end."""
    coming = asyncio.create_task(consumer.__anext__())
    ending = asyncio.create_task(stopping.wait())
    try:
        await asyncio.wait((coming, ending), return_when=asyncio.FIRST_COMPLETED)
        return coming.result() if coming.done() else None
    finally:
        coming.cancel()
        ending.cancel()


@app.exception_handler(octopi.OctopiError)
async def report(_: Request, error: octopi.OctopiError) -> JSONResponse:
    """The answer to a request that failed."""
    status = http_status(error)
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"code": error.code, "detail": str(error)}, status, headers)


def http_status(error: octopi.OctopiError) -> int:
    """What an error of the log says to a client of this service."""
    match error:
        case octopi.InvalidOptionError() | octopi.OffsetInsideRecordError():
            return 400  # no position
        case (
            octopi.HistoryLostError()
            | octopi.HistoryForkedError()
            | octopi.OffsetOutOfRangeError()
            | octopi.TopicReplacedError()
        ):
            return 410  # nothing is at this position any more: read from "earliest" again
        case octopi.OutcomeUnknownError():
            return 504  # the order may be stored: look before you order again
        case octopi.NotDeliveredError() | octopi.UnreachableError() | octopi.ConnectionLostError():
            return 503  # nothing is stored: try again
        case octopi.RefusedError() if error.retryable:
            return 503
        case _:
            return 500  # this service is at fault, such as for its token


class Server(uvicorn.Server):
    """A server that ends its streams when it is told to end."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGTERM and SIGINT."""
        asyncio.get_running_loop().call_soon_threadsafe(stopping.set)
        super().handle_exit(sig, frame)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        Server(uvicorn.Config(app, port=PORT)).run()
