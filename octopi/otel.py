"""Traces of messages with OpenTelemetry; installed by ``pip install 'octopi-node[otel]'``.

The context of a trace travels in the headers ``traceparent`` and ``tracestate`` of a message
(https://www.w3.org/TR/trace-context).  Spans have the names and attributes of OpenTelemetry's
semantic conventions for messaging (https://opentelemetry.io/docs/specs/semconv/messaging), with the
system ``octopi``.

A program that doesn't use this module pays nothing for it: the clients don't know it.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar, Unpack

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.propagators.textmap import Getter, Setter
    from opentelemetry.trace import Link, Span, SpanKind, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImportError("octopi.otel needs OpenTelemetry: pip install 'octopi-node[otel]'") from error

from octopi.clients.producing.receipts import Receipt
from octopi.version import __version__

SYSTEM: Final = "octopi"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_HEADER_BYTES_MAX: Final = 1024
"""Headers of others are read up to this size.  ``traceparent`` has 55 bytes, and vendors should
take at least 512 of ``tracestate``."""

_Pending = TypeVar("_Pending")
_PendingOut = TypeVar("_PendingOut", covariant=True)
_M = TypeVar("_M", bound="TracedMessage")


class TracedMessage(Protocol):
    """A message that was consumed: `octopi.Message`, or `octopi.DealtMessage` of a queue."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def partition(self) -> int:
        """The partition of its log."""

    @property
    def offset(self) -> int:
        """Where its record starts in the log."""

    @property
    def value(self) -> bytes:
        """Its value."""

    @property
    def headers(self) -> Mapping[str, bytes]:
        """Its headers."""


class SendOptions(TypedDict, total=False):
    """What `octopi.Producer.send` and `octopi.Producer.submit` take beside topic and value."""

    key: bytes | None
    headers: Mapping[str, bytes] | None
    timestamp: datetime | None
    partition: int | None


class AsyncSender(Protocol[_PendingOut]):
    """A producer for Trio (`octopi.Producer`) or for asyncio (`octopi.aio.Producer`)."""

    async def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed."""

    async def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> _PendingOut:
        """Queue a message."""


class BlockingSender(Protocol[_PendingOut]):
    """A producer for programs that block (`octopi.blocking.Producer`)."""

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> Receipt:
        """Send a message and wait until it is committed."""

    def submit(
        self,
        topic: str,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
        timestamp: datetime | None = None,
        partition: int | None = None,
    ) -> _PendingOut:
        """Queue a message."""


class Telemetry:
    """Makes spans for messages that are sent, received and processed."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        """*tracer_provider*: where spans go; None: to the global one."""
        self._tracer = trace.get_tracer("octopi", __version__, tracer_provider)

    def producer(self, producer: AsyncSender[_Pending]) -> TracedProducer[_Pending]:
        """*producer*, whose messages carry the context of their spans.  For Trio and asyncio."""
        return TracedProducer(self, producer)

    def blocking_producer(self, producer: BlockingSender[_Pending]) -> TracedSender[_Pending]:
        """*producer*, whose messages carry the context of their spans.  For `octopi.blocking`."""
        return TracedSender(self, producer)

    @contextmanager
    def sending(
        self,
        topic: str,
        value: bytes,
        headers: Mapping[str, bytes] | None = None,
        *,
        is_sent: bool = True,
    ) -> Iterator[Sending]:
        """A span for a message that is sent in the block; send it with `Sending.headers`.
        *is_sent*: whether the block waits until it is committed; otherwise it only queues it, and
        the span is called ``create``."""
        name = "send" if is_sent else "create"
        attributes = {
            **_attributes(name, topic),
            "messaging.message.body.size": len(value),
        }
        with (
            self._tracer.start_as_current_span(
                f"{name} {topic}", kind=SpanKind.PRODUCER, attributes=attributes
            ) as span,
            _failures_noted(span),
        ):
            carried = dict(headers or {})
            _PROPAGATOR.inject(carried, setter=_SETTER)
            yield Sending(span, carried)

    def receive(self, messages: AsyncIterable[_M]) -> AsyncIterator[_M]:
        """The messages of a consumer or a subscription for Trio or asyncio, with a span for each:
        how long the program waited for it.  The span is linked to the one that sent it."""
        return _Received(self, aiter(messages))

    def receive_blocking(self, messages: Iterable[_M]) -> Iterator[_M]:
        """`receive` for `octopi.blocking`."""
        source = iter(messages)
        while True:
            span = self.waiting()
            try:
                message = next(source)
            except StopIteration:
                return
            _note_received(span, message)
            yield message

    def waiting(self) -> Span:
        """A span for the wait for a message.  It is not told to anyone unless it is ended."""
        return self._tracer.start_span("receive", kind=SpanKind.CLIENT)

    @contextmanager
    def process(self, message: TracedMessage, *, subscription: str | None = None) -> Iterator[Span]:
        """A span for a message that is processed in the block, as a child of the span that sent it.
        An exception of the block is noted in the span, and goes on.  *subscription*: the name of
        the durable subscription that it comes from.

        If there is another span around the block, the new one is linked to it.
        """
        attributes = _of_message("process", message)
        if subscription is not None:
            attributes["messaging.destination.subscription.name"] = subscription
        around = trace.get_current_span().get_span_context()
        sent = sender_of(message)
        with (
            self._tracer.start_as_current_span(
                f"process {message.topic}",
                context=_carried(message) if sent.is_valid else None,
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=[Link(around)] if sent.is_valid and around.is_valid else [],
            ) as span,
            _failures_noted(span),
        ):
            yield span


class Sending:
    """A message that is about to be sent."""

    def __init__(self, span: Span, headers: Mapping[str, bytes]) -> None:
        self._span = span
        self.headers: Final = headers
        """The headers to send it with."""

    def committed(self, receipt: Receipt) -> None:
        """Note where the message is stored."""
        self._span.set_attribute("messaging.destination.partition.id", str(receipt.partition))
        self._span.set_attribute("messaging.message.id", str(receipt.offset))


class _Received(Generic[_M]):
    """An iterator and not a generator, so a loop over it may end early without clean-up."""

    def __init__(self, telemetry: Telemetry, source: AsyncIterator[_M]) -> None:
        self._telemetry = telemetry
        self._source = source

    def __aiter__(self) -> _Received[_M]:
        return self

    async def __anext__(self) -> _M:
        span = self._telemetry.waiting()
        message = await anext(self._source)
        _note_received(span, message)
        return message


def _note_received(span: Span, message: TracedMessage) -> None:
    """End *span*, the wait for *message*."""
    span.update_name(f"receive {message.topic}")
    span.set_attributes(_of_message("receive", message))
    sent = sender_of(message)
    if sent.is_valid:
        span.add_link(sent)
    span.end()


class TracedProducer(Generic[_Pending]):
    """A producer for Trio or asyncio, with a span for each message.  Made by
    `Telemetry.producer`.  What else a producer does, the one inside does."""

    def __init__(self, telemetry: Telemetry, producer: AsyncSender[_Pending]) -> None:
        self._telemetry = telemetry
        self._producer = producer

    async def send(self, topic: str, value: bytes, **options: Unpack[SendOptions]) -> Receipt:
        """`octopi.Producer.send`, in a span ``send TOPIC``."""
        with self._telemetry.sending(topic, value, options.get("headers")) as sending:
            options["headers"] = sending.headers
            receipt = await self._producer.send(topic, value, **options)
            sending.committed(receipt)
            return receipt

    async def submit(self, topic: str, value: bytes, **options: Unpack[SendOptions]) -> _Pending:
        """`octopi.Producer.submit`, in a span ``create TOPIC``."""
        with self._telemetry.sending(
            topic, value, options.get("headers"), is_sent=False
        ) as sending:
            options["headers"] = sending.headers
            return await self._producer.submit(topic, value, **options)


class TracedSender(Generic[_Pending]):
    """`TracedProducer` for `octopi.blocking`.  Made by `Telemetry.blocking_producer`."""

    def __init__(self, telemetry: Telemetry, producer: BlockingSender[_Pending]) -> None:
        self._telemetry = telemetry
        self._producer = producer

    def send(self, topic: str, value: bytes, **options: Unpack[SendOptions]) -> Receipt:
        """`octopi.blocking.Producer.send`, in a span ``send TOPIC``."""
        with self._telemetry.sending(topic, value, options.get("headers")) as sending:
            options["headers"] = sending.headers
            receipt = self._producer.send(topic, value, **options)
            sending.committed(receipt)
            return receipt

    def submit(self, topic: str, value: bytes, **options: Unpack[SendOptions]) -> _Pending:
        """`octopi.blocking.Producer.submit`, in a span ``create TOPIC``."""
        with self._telemetry.sending(
            topic, value, options.get("headers"), is_sent=False
        ) as sending:
            options["headers"] = sending.headers
            return self._producer.submit(topic, value, **options)


def sender_of(message: TracedMessage) -> trace.SpanContext:
    """The span that sent *message*; not valid (`SpanContext.is_valid`) if it carries none."""
    return trace.get_current_span(_carried(message)).get_span_context()


def _carried(message: TracedMessage) -> Context:
    """The context in the headers of *message*; empty if they have none, or a damaged one."""
    return _PROPAGATOR.extract(message.headers, context=Context(), getter=_GETTER)


def _attributes(operation: str, topic: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _of_message(operation: str, message: TracedMessage) -> dict[str, Any]:
    return {
        **_attributes(operation, message.topic),
        "messaging.destination.partition.id": str(message.partition),
        "messaging.message.id": str(message.offset),
        "messaging.message.body.size": len(message.value),
    }


@contextmanager
def _failures_noted(span: Span) -> Iterator[None]:
    """Name the class of an exception of the block; the span's own block notes the rest."""
    try:
        yield
    except Exception as error:
        span.set_attribute("error.type", type(error).__qualname__)
        raise


class _HeaderGetter(Getter[Mapping[str, bytes]]):
    """Reads headers.  They come from other programs, so anything may be in them."""

    def get(self, carrier: Mapping[str, bytes], key: str) -> list[str] | None:
        value = carrier.get(key)
        if value is None or len(value) > _HEADER_BYTES_MAX or not value.isascii():
            return None
        return [value.decode("ascii")]

    def keys(self, carrier: Mapping[str, bytes]) -> list[str]:
        return list(carrier)


class _HeaderSetter(Setter[MutableMapping[str, bytes]]):
    """Writes headers."""

    def set(self, carrier: MutableMapping[str, bytes], key: str, value: str) -> None:
        carrier[key] = value.encode("ascii")


_GETTER: Final = _HeaderGetter()
_SETTER: Final = _HeaderSetter()
