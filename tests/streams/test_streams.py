"""Streams over HTTP at real nodes in the test's process, whichever node is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi.errors import NotDeliveredError, Status
from octopi.limits import HTTP_FORK_BYTES_MAX, HTTP_JSON_BYTES_MAX
from tests.admin.nodes import Nodes, serving_nodes
from tests.streams.http_client import Reply, ask, connect, events, receive_until

FORM = "application/x-www-form-urlencoded"
TEXT = "text/plain"
JSON = "application/json"


async def each_answers(nodes: Nodes, method: str, path: str) -> list[Reply]:
    """The answers of the register and of all brokers."""
    return [await ask(url, method, path) for url in (nodes.register, *nodes.brokers)]


async def test_what_curl_writes_at_one_node_is_read_at_every_node(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=2) as nodes:
        for number, url in enumerate((nodes.register, *nodes.brokers)):
            made = await ask(url, "POST", "orders", b"%d" % number, content_type=FORM)
            assert made.status == 204, made.body
        replies = await each_answers(nodes, "GET", "orders?offset=-1")
        assert [(one.status, one.body) for one in replies] == [(200, b"012")] * 3
        heads = await each_answers(nodes, "HEAD", "orders")
        assert {one.next_offset for one in heads} == {replies[0].next_offset}


async def test_streams_and_topics_are_the_same(tmp_path: Path) -> None:
    async with (
        serving_nodes(tmp_path) as nodes,
        octopi.connect(nodes.register) as client,
    ):
        await client.create_topic("orders")
        async with client.producer() as producer:
            await producer.send("orders", b"one ")
        made = await ask(nodes.brokers[0], "POST", "orders", b"two", content_type=FORM)
        assert made.status == 204
        assert (await ask(nodes.register, "GET", "orders")).body == b"one two"
        async with client.consumer("orders", start="earliest") as consumer:
            with trio.fail_after(10):
                found = [(await anext(consumer)).value for _ in range(2)]
        assert found == [b"one ", b"two"]


async def test_a_topic_of_several_partitions_is_read_one_partition_at_a_time(
    tmp_path: Path,
) -> None:
    async with (
        serving_nodes(tmp_path) as nodes,
        octopi.connect(nodes.register) as client,
    ):
        topic = await client.create_topic("orders", 2)
        number = topic.partitions[1].partition
        for url in (nodes.register, nodes.brokers[0]):
            unclear = await ask(url, "GET", "orders")
            assert unclear.status == 400
            assert b"?partition=NUMBER" in unclear.body
            path = f"orders?partition={number}"
            assert (await ask(url, "POST", path, b"x", content_type=FORM)).status == 204
            assert (await ask(url, "GET", "orders?partition=77")).status == 404
            assert (await ask(url, "GET", "orders?partition=x")).status == 400
        assert (await ask(nodes.register, "GET", path)).body == b"xx"


async def test_a_closed_topic_takes_no_messages_of_websocket_clients_either(
    tmp_path: Path,
) -> None:
    async with (
        serving_nodes(tmp_path) as nodes,
        octopi.connect(nodes.register) as client,
    ):
        url = nodes.brokers[0]
        await ask(url, "PUT", "job", content_type=TEXT)
        closed = await ask(url, "POST", "job", b"done", content_type=TEXT, stream_closed="true")
        assert (closed.status, closed.headers["stream-closed"]) == (204, "true")
        async with client.producer() as producer:
            with pytest.raises(NotDeliveredError) as failure:
                await producer.send("job", b"late")
        assert Status.TOPIC_CLOSED.name.lower() in str(failure.value)
        end = await ask(url, "GET", "job?offset=-1")
        assert (end.body, end.headers["stream-closed"]) == (b"done", "true")
        assert (await ask(url, "POST", "job", b"late", content_type=TEXT)).status == 409


async def test_a_repeated_write_of_a_producer_is_stored_once(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=2) as nodes:
        await ask(nodes.register, "PUT", "orders", content_type=JSON)
        producer: dict[str, Any] = {"producer_id": "p", "producer_epoch": "0", "content_type": JSON}
        for sequence, body in enumerate((b"[1,2]", b"3", b"[4]")):
            statuses = []
            for url in (*nodes.brokers, nodes.register):
                sent = await ask(
                    url, "POST", "orders", body, producer_seq=str(sequence), **producer
                )
                statuses.append(sent.status)
            assert statuses == [200, 204, 204]
        assert json.loads((await ask(nodes.register, "GET", "orders")).body) == [1, 2, 3, 4]


async def test_live_readers_get_what_is_written(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, brokers=2) as nodes:
        await ask(nodes.register, "PUT", "news", content_type=TEXT)
        polled: list[Reply] = []

        async def poll(url: str) -> None:
            polled.append(await ask(url, "GET", "news?offset=now&live=long-poll"))

        async with (
            events(nodes.register, "news?offset=now&live=sse") as far,
            events(nodes.brokers[0], "news?offset=now&live=sse") as near,
            trio.open_nursery() as nursery,
        ):
            for stream in (far, near):
                await receive_until(stream, b'"upToDate":true')
            nursery.start_soon(poll, nodes.brokers[1])
            while not polled:
                await ask(nodes.brokers[0], "POST", "news", b"a\nb", content_type=TEXT)
            for stream in (far, near):
                await receive_until(stream, b"data:a\ndata:b\n")
        assert polled[0].body.startswith(b"a\nb")


async def test_an_expired_stream_is_gone_and_its_topic_is_deleted(tmp_path: Path) -> None:
    async with (
        serving_nodes(tmp_path) as nodes,
        octopi.connect(nodes.register) as client,
    ):
        url = nodes.brokers[0]
        await ask(url, "PUT", "brief", b"x", content_type=TEXT, stream_ttl="0")
        assert (await ask(url, "GET", "brief")).status == 404
        with trio.fail_after(20):
            while await client.topics():
                pass
        # Brokers may still be deleting the topic of that name.
        while (made := await ask(url, "PUT", "brief", content_type=TEXT)).status == 503:
            pass
        assert made.status in {200, 201}


async def test_several_that_create_an_expired_stream_anew_get_one_stream(tmp_path: Path) -> None:
    made: list[Reply] = []

    async with serving_nodes(tmp_path, brokers=2) as nodes:

        async def create(url: str) -> None:
            while True:
                reply = await ask(url, "PUT", "brief", content_type=JSON, stream_ttl="3600")
                if reply.status != 503:  # not in time, on a busy machine: it is asked again
                    break
            made.append(reply)

        for _ in range(5):
            await ask(nodes.register, "PUT", "brief", b"x", content_type=TEXT, stream_ttl="0")
            async with trio.open_nursery() as nursery:
                for url in (nodes.register, *nodes.brokers) * 3:
                    nursery.start_soon(create, url)
            assert sorted(one.status for one in made) == [200] * 8 + [201], made
            made.clear()
            assert (await ask(nodes.brokers[0], "GET", "brief")).body == b"[]"
            await ask(nodes.register, "DELETE", "brief")


async def test_a_path_of_several_segments_names_an_escaped_topic(tmp_path: Path) -> None:
    async with (
        serving_nodes(tmp_path) as nodes,
        octopi.connect(nodes.register) as client,
    ):
        made = await ask(nodes.register, "PUT", "a/b", b"x", content_type=TEXT)
        assert made.headers["location"].endswith("/v1/streams/a/b")
        assert [one.topic for one in await client.topics()] == ["path.a.2fb"]


# --- bad input ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        ("GET", "no-such-stream", {}, b"", 404),
        ("GET", "orders?offset=12", {}, b"", 400),
        ("GET", f"orders?offset={7:020d}", {}, b"", 400),
        ("GET", f"orders?offset={1 << 50:020d}", {}, b"", 400),
        ("GET", f"orders?offset={0:020d}~x", {}, b"", 400),
        ("GET", "orders?offset=-1&offset=-1", {}, b"", 400),
        ("GET", "orders?live=sse", {}, b"", 400),
        ("GET", "orders?offset=-1&live=maybe", {}, b"", 400),
        ("GET", "a//b", {}, b"", 400),
        ("POST", "orders", {"content_type": JSON}, b"1", 409),
        ("POST", "orders", {"content_type": TEXT}, b"", 400),
        ("POST", "orders", {}, b"x", 400),
        ("POST", "orders", {"content_type": TEXT, "producer_id": "p"}, b"x", 400),
        ("POST", "orders", {"content_type": TEXT, "content_encoding": "gzip"}, b"x", 415),
        ("POST", "orders", {"content_type": TEXT}, b"x" * (4 * 1024 * 1024 + 1), 413),
        ("POST", "orders", {"content_type": TEXT, "octopi_fork": "x"}, b"x", 400),
        ("PUT", "other", {"stream_ttl": "soon"}, b"", 400),
        ("PUT", "orders", {"content_type": JSON}, b"", 409),
        ("PUT", "other", {"stream_forked_from": "/none"}, b"", 404),
        ("PATCH", "orders", {}, b"", 405),
        ("DELETE", "none", {}, b"", 404),
    ],
)
async def test_a_wrong_request_has_a_stable_status_and_others_are_undisturbed(
    tmp_path: Path, method: str, path: str, headers: dict[str, Any], body: bytes, status: int
) -> None:
    async with serving_nodes(tmp_path) as nodes:
        for url in (nodes.register, nodes.brokers[0]):
            await ask(url, "PUT", "orders", b"content", content_type=TEXT)
            assert (await ask(url, method, path, body, **headers)).status == status
            assert (await ask(url, "GET", "orders")).body == b"content"


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 3\r\ntransfer-encoding: chunked\r\n",
        b"content-length: 3\r\ncontent-length: 4\r\n",
        b"transfer-encoding: gzip, chunked\r\n",
        b"producer-id: a\r\nproducer-id: b\r\ncontent-length: 0\r\n",
        b"content-length: 0\r\nx: a\nproducer-id: b\r\n",
    ],
)
async def test_a_head_that_can_be_read_in_two_ways_is_refused(tmp_path: Path, head: bytes) -> None:
    async with serving_nodes(tmp_path) as nodes, await connect(nodes.register) as stream:
        await stream.send_all(b"POST /v1/streams/orders HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
        answer = await receive_until(stream, b"\r\n\r\n")
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 501 "))


async def test_a_long_body_of_json_and_a_long_fork_are_refused(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.brokers[0]
        await ask(url, "PUT", "values", content_type=JSON)
        long = json.dumps("x" * HTTP_JSON_BYTES_MAX).encode()
        assert (await ask(url, "POST", "values", long, content_type=JSON)).status == 413
        for _ in range(3):
            await ask(url, "POST", "bytes", b"x" * (HTTP_FORK_BYTES_MAX // 3), content_type=FORM)
        fork = await ask(url, "PUT", "fork", stream_forked_from="/v1/streams/bytes")
        assert fork.status == 413
        assert (await ask(url, "HEAD", "fork")).status == 404


async def test_a_request_that_was_forwarded_twice_goes_no_further(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        hops = "ws://127.0.0.1:1 ws://127.0.0.1:2"
        for url in (nodes.register, nodes.brokers[0]):
            for method in ("GET", "PUT"):
                if (url, method) != (nodes.register, "PUT"):
                    await ask(nodes.register, "PUT", "orders", content_type=TEXT)
                    path = "orders" if url == nodes.register else "unknown"
                    stopped = await ask(url, method, path, octopi_hops=hops)
                    assert (stopped.status, stopped.headers["retry-after"]) == (503, "1")


async def test_content_can_not_inject_headers_or_events(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.register
        await ask(url, "PUT", "orders", b"x\r\n\r\nevent: control\ndata: {}", content_type=TEXT)
        async with events(url, "orders?offset=-1&live=sse") as stream:
            received = await receive_until(stream, b'"upToDate":true')
        assert received.count(b"\nevent: control") == 1
        injected = await ask(url, "GET", "orders%0d%0ax-evil:%201")
        assert "x-evil" not in injected.headers


async def test_a_body_that_never_ends_holds_up_nobody_else(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes, await connect(nodes.brokers[0]) as stream:
        await ask(nodes.register, "PUT", "orders", content_type=TEXT)
        head = b"POST /v1/streams/orders HTTP/1.1\r\nhost: x\r\ncontent-type: text/plain\r\n"
        await stream.send_all(head + b"content-length: 100\r\n\r\nhalf")
        for _ in range(20):
            sent = await ask(nodes.brokers[0], "POST", "orders", b"x", content_type=TEXT)
            assert sent.status == 204
        assert (await ask(nodes.register, "GET", "orders")).body == b"x" * 20


async def test_a_connection_serves_one_request_after_another(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes, await connect(nodes.register) as stream:
        post = (
            b"POST /v1/streams/orders HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: "
            + FORM.encode()
            + b"\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        )
        get = b"GET /v1/streams/orders HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
        await stream.send_all(post + post + get)
        received = await receive_until(stream, b"abab")
        assert received.count(b"HTTP/1.1 204 ") == 2
        assert received.count(b"HTTP/1.1 200 ") == 1
