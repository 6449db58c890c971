"""Traces: what programs see of a message from where it is sent to where it is processed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import octopi
import octopi.aio
import octopi.blocking
from harness.processes import node_processes
from octopi.identifiers import Offset, PartitionId, TopicName
from octopi.otel import Telemetry, sender_of
from octopi.record import Message

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE_ID}-b7ad6b7169203331-01".encode()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a register with one broker."""
    with node_processes(tmp_path_factory.mktemp("cluster")) as nodes:
        register = nodes.register()
        nodes.broker(register)
        yield register.url


class Traces:
    """Spans in memory, as the SDK would export them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = Telemetry(self.provider)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The ended spans, in the order of their ends."""
        return self._exporter.get_finished_spans()

    def one(self, name: str) -> ReadableSpan:
        """The only span of that name."""
        [span] = [span for span in self.spans if span.name == name]
        return span


@pytest.fixture
def traces() -> Traces:
    return Traces()


def message(**headers: bytes) -> Message:
    """A message that was consumed."""
    topic, partition = TopicName("orders"), PartitionId(3)
    return Message(topic, partition, Offset(70), Offset(130), None, None, b"value", headers, b"")


def context_of(span: ReadableSpan) -> tuple[int, int]:
    """The ids of the trace and of the span."""
    context = span.get_span_context()
    assert context is not None
    return context.trace_id, context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return None if span.parent is None else (span.parent.trace_id, span.parent.span_id)


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def is_one_trace(traces: Traces, topic: str, receipt: octopi.Receipt) -> None:
    """Check the spans of one message that was sent, received and processed."""
    sent, received, processed = (
        traces.one(f"{name} {topic}") for name in ("send", "receive", "process")
    )
    assert parent_of(processed) == context_of(sent)
    assert links_of(received) == [context_of(sent)]
    assert [span.kind for span in (sent, received, processed)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
    ]
    for span, operation in ((sent, "send"), (received, "receive"), (processed, "process")):
        assert dict(span.attributes or {}) == {
            "messaging.system": "octopi",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": topic,
            "messaging.destination.partition.id": str(receipt.partition),
            "messaging.message.id": str(receipt.offset),
            "messaging.message.body.size": 5,
        }


@pytest.mark.process
async def test_a_message_is_one_trace_from_its_producer_to_its_consumer_with_trio(
    url: str, traces: Traces
) -> None:
    telemetry = traces.telemetry
    async with octopi.connect(url, request_timeout_s=20) as client:
        async with client.producer() as plain:
            producer = telemetry.producer(plain)
            receipt = await producer.send("trio", b"value", headers={"kind": b"visit"})
        async with client.consumer("trio", start="earliest", stop_at_end=True) as consumer:
            async for found in telemetry.receive(consumer):
                assert found.headers["kind"] == b"visit"
                with telemetry.process(found):
                    pass
    is_one_trace(traces, "trio", receipt)


@pytest.mark.process
def test_a_message_is_one_trace_from_its_producer_to_its_consumer_with_asyncio(
    url: str, traces: Traces
) -> None:
    telemetry = traces.telemetry

    async def main() -> octopi.Receipt:
        async with octopi.aio.connect(url, request_timeout_s=20) as client:
            async with client.producer() as plain:
                receipt = await telemetry.producer(plain).send("asyncio", b"value")
            async with client.consumer("asyncio", start="earliest", stop_at_end=True) as consumer:
                async for found in telemetry.receive(consumer):
                    with telemetry.process(found):
                        pass
            return receipt

    with ThreadPoolExecutor() as pool:
        receipt = pool.submit(asyncio.run, main()).result()
    is_one_trace(traces, "asyncio", receipt)


@pytest.mark.process
def test_a_message_is_one_trace_from_its_producer_to_its_consumer_with_blocking_calls(
    url: str, traces: Traces
) -> None:
    telemetry = traces.telemetry
    with octopi.blocking.connect(url, request_timeout_s=20) as client:
        with client.producer() as plain:
            receipt = telemetry.blocking_producer(plain).send("blocking", b"value")
        with client.consumer("blocking", start="earliest", stop_at_end=True) as consumer:
            for found in telemetry.receive_blocking(consumer):
                with telemetry.process(found):
                    pass
    is_one_trace(traces, "blocking", receipt)


@pytest.mark.process
async def test_a_message_of_a_queue_is_processed_in_the_trace_that_sent_it(
    url: str, traces: Traces
) -> None:
    telemetry = traces.telemetry
    async with octopi.connect(url, request_timeout_s=20) as client:
        async with client.producer() as plain:
            pending = await telemetry.producer(plain).submit("jobs", b"value")
            await pending
        async with client.subscription("jobs", "work", mode="shared") as queue:
            async for dealt in telemetry.receive(queue):
                async with dealt:
                    with telemetry.process(dealt, subscription="work"):
                        pass
                break
    created, processed = traces.one("create jobs"), traces.one("process jobs")
    assert parent_of(processed) == context_of(created)
    assert processed.attributes is not None
    assert processed.attributes["messaging.destination.subscription.name"] == "work"


@pytest.mark.process
async def test_a_message_that_is_not_stored_has_a_span_with_the_error(
    url: str, traces: Traces
) -> None:
    async with (
        octopi.connect(url, request_timeout_s=20) as client,
        client.producer(create_topics=False) as plain,
    ):
        with pytest.raises(octopi.UnknownTopicError):
            await traces.telemetry.producer(plain).send("nowhere", b"value")
    failed = traces.one("send nowhere")
    assert failed.status.status_code == StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "UnknownTopicError"


def test_a_failure_to_process_is_noted_and_goes_on(traces: Traces) -> None:
    with pytest.raises(ValueError, match="no such customer"), traces.telemetry.process(message()):
        raise ValueError("no such customer")
    failed = traces.one("process orders")
    assert failed.status.status_code == StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]


def test_the_trace_of_the_program_goes_on_in_the_headers(traces: Traces) -> None:
    tracer = traces.provider.get_tracer("program")
    with (
        tracer.start_as_current_span("request") as around,
        traces.telemetry.sending("orders", b"value") as sending,
    ):
        sent = dict(sending.headers)
    found = sender_of(message(**sent))
    assert found.trace_id == around.get_span_context().trace_id
    assert found.span_id == context_of(traces.one("send orders"))[1]
    assert found.is_remote


def test_a_processing_in_another_span_is_linked_to_it(traces: Traces) -> None:
    tracer = traces.provider.get_tracer("program")
    with (
        tracer.start_as_current_span("poll"),
        traces.telemetry.process(message(traceparent=PARENT)),
    ):
        pass
    processed = traces.one("process orders")
    assert parent_of(processed) == (int(TRACE_ID, 16), int("b7ad6b7169203331", 16))
    assert links_of(processed) == [context_of(traces.one("poll"))]


def test_a_message_without_a_trace_is_processed_in_the_programs_own(traces: Traces) -> None:
    tracer = traces.provider.get_tracer("program")
    with tracer.start_as_current_span("poll"), traces.telemetry.process(message()):
        pass
    processed = traces.one("process orders")
    assert parent_of(processed) == context_of(traces.one("poll"))
    assert links_of(processed) == []


def test_the_state_of_a_trace_is_carried_too(traces: Traces) -> None:
    found = message(traceparent=PARENT, tracestate=b"vendor=value")
    assert sender_of(found).trace_state["vendor"] == "value"
    telemetry = traces.telemetry
    with telemetry.process(found), telemetry.sending("invoices", b"value") as sending:
        assert sending.headers["tracestate"] == b"vendor=value"


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"00",
        b"\xff" * 55,
        "\u0660".encode() * 55,
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"ff-" + PARENT[3:],
        PARENT * 100,
    ],
)
def test_a_damaged_header_is_no_trace_and_no_error(traces: Traces, damaged: bytes) -> None:
    found = message(traceparent=damaged, tracestate=b"\x00=\xff")
    assert not sender_of(found).is_valid
    with traces.telemetry.process(found):
        pass
    assert parent_of(traces.one("process orders")) is None


def test_a_wait_that_ends_without_a_message_is_no_span(traces: Traces) -> None:
    assert list(traces.telemetry.receive_blocking([message()])) == [message()]
    assert [span.name for span in traces.spans] == ["receive orders"]


def test_a_client_that_does_not_ask_for_traces_loads_nothing_of_them() -> None:
    program = (
        "import sys, octopi, octopi.aio, octopi.blocking; octopi.connect, octopi.Producer; "
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
