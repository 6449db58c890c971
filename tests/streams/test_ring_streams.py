"""Streams over HTTP at the brokers of a cluster without a register, whichever of them is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import trio

import octopi
from harness.processes import NodeProcess, node_processes
from octopi.errors import UnknownTopicError
from tests.kit.ring_processes import start_ring
from tests.streams.http_client import Reply, ask
from tests.streams.test_streams import FORM, JSON, TEXT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[NodeProcess]]:
    with node_processes(tmp_path_factory.mktemp("ring")) as nodes:
        yield start_ring(nodes, 3)


async def answered(url: str, method: str, path: str, body: bytes = b"", **headers: str) -> Reply:
    """The answer, once the broker is not busy with beginning to lead."""
    with trio.fail_after(30):
        while True:
            reply = await ask(url, method, path, body, tls=None, **headers)
            if reply.status != 503:
                return reply
            await trio.sleep(0.1)  # nothing announces it


async def test_what_is_written_at_one_broker_is_read_at_every_broker(
    ring: list[NodeProcess],
) -> None:
    for number, node in enumerate(ring):
        made = await answered(node.url, "POST", "orders", b"%d" % number, content_type=FORM)
        assert made.status == 204, made.body
    replies = [await answered(one.url, "GET", "orders?offset=-1") for one in ring]
    assert [(one.status, one.body) for one in replies] == [(200, b"012")] * 3
    heads = [await answered(one.url, "HEAD", "orders") for one in ring]
    assert {one.next_offset for one in heads} == {replies[0].next_offset}


async def test_streams_are_created_once_closed_and_deleted_through_any_broker(
    ring: list[NodeProcess],
) -> None:
    first, second, third = (one.url for one in ring)
    for number in range(5):  # their records lie in several homes
        name = f"job-{number}"
        assert (await answered(first, "PUT", name, b"[1]", content_type=JSON)).status == 201
        assert (await answered(second, "PUT", name, content_type=JSON)).status == 200
        assert (await answered(third, "PUT", name, content_type=TEXT)).status == 409
        sent = await answered(third, "POST", name, b"[2,3]", content_type=JSON)
        assert sent.status == 204
        assert json.loads((await answered(second, "GET", name)).body) == [1, 2, 3]
        closed = await answered(second, "POST", name, content_type=JSON, stream_closed="true")
        assert (closed.status, closed.headers["stream-closed"]) == (204, "true")
        late = await answered(first, "POST", name, b"[4]", content_type=JSON)
        assert late.status == 409
        assert (await answered(third, "DELETE", name)).status == 204
        assert (await answered(first, "GET", name)).status == 404
    assert (await answered(first, "GET", "nothing")).status == 404


async def test_a_fork_is_refused_with_words(ring: list[NodeProcess]) -> None:
    await answered(ring[0].url, "PUT", "source", b"x", content_type=TEXT)
    for node in ring:
        refused = await answered(node.url, "PUT", "fork", stream_forked_from="/v1/streams/source")
        assert refused.status == 400
        assert b"forks no streams yet" in refused.body


async def test_a_stream_that_expires_is_deleted_by_its_home(ring: list[NodeProcess]) -> None:
    for number in range(4):
        made = await answered(
            ring[number % 3].url, "PUT", f"short-{number}", content_type=TEXT, stream_ttl="2"
        )
        assert made.status == 201
    async with octopi.connect(ring[1].url) as client:
        for number in range(4):
            with trio.fail_after(30):
                while True:
                    try:
                        await client.describe_topic(f"short-{number}")
                    except UnknownTopicError:
                        break
                    await trio.sleep(0.2)  # nothing announces it
            assert (await answered(ring[2].url, "GET", f"short-{number}")).status == 404


async def test_streams_go_on_after_a_broker_was_killed(ring: list[NodeProcess]) -> None:
    url = ring[0].url
    async with octopi.connect([one.url for one in ring]) as client:
        for number in range(4):
            await answered(url, "PUT", f"kept-{number}", b"before ", content_type=TEXT)
            with trio.fail_after(30):
                while True:
                    [place] = (await client.describe_topic(f"kept-{number}")).partitions
                    if len(place.in_sync) == 3:
                        break
                    await trio.sleep(0.1)  # nothing announces it
    ring[2].kill9()
    for number in range(4):
        name = f"kept-{number}"
        written = await answered(ring[1].url, "POST", name, b"after", content_type=TEXT)
        assert written.status == 204, written.body
        assert (await answered(url, "GET", name)).body == b"before after"
    ring[2].start()
    assert (await answered(ring[2].url, "GET", "kept-0")).body == b"before after"
