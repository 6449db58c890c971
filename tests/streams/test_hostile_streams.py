"""Requests that want more than they are granted, and requests that come at a bad moment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

import octopi
from octopi.cli.config import NodeSettings
from octopi.errors import NotReadyError
from octopi.roles.broker.streams.appending import StreamWriter
from octopi.roles.register.streams import RegisterStreams
from tests.admin.nodes import serving_nodes
from tests.admin.test_protected_nodes import with_tokens
from tests.streams.http_client import ask, connect, receive_until
from tests.streams.test_protected_streams import bearer

TEXT = "text/plain"
JSON = "application/json"
FORM = "application/x-www-form-urlencoded"


async def test_who_may_not_use_a_topic_is_not_told_whether_there_is_one(tmp_path: Path) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    async with serving_nodes(tmp_path, common=common) as nodes:
        owner: Any = bearer(create="*", admin="*", publish="*", subscribe="*")
        await ask(nodes.register, "PUT", "secret-0", content_type=TEXT, **owner)
        client = octopi.connect(nodes.register, token=owner["authorization"].split()[1])
        async with client as connected:
            await connected.create_topic("secret-2", 2)
        for url in (nodes.register, nodes.brokers[0]):
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
                answers = set()
                for topic in ("secret-0", "secret-1", "secret-2", "secret-2?partition=99"):
                    stranger: Any = bearer(subscribe="other", publish="other")
                    answer = await ask(url, method, topic, b"", content_type=FORM, **stranger)
                    answers.add((answer.status, answer.body.replace(topic[:8].encode(), b"")))
                assert len(answers) == 1, (method, answers)
                assert answers.pop()[0] == 403


async def test_a_stream_is_not_created_for_a_token_that_can_not_write_its_first_content(
    tmp_path: Path,
) -> None:
    async with serving_nodes(tmp_path, common=with_tokens(tmp_path, NodeSettings())) as nodes:
        owner: Any = bearer(create="*", admin="*", publish="*", subscribe="*")
        await ask(nodes.register, "PUT", "source", b"x", content_type=TEXT, **owner)
        maker: Any = bearer(create="*", subscribe="*")
        wishes: tuple[tuple[str, dict[str, Any]], ...] = (
            ("closed", {"stream_closed": "true"}),
            ("fork", {"stream_forked_from": "/v1/streams/source"}),
        )
        for name, wanted in wishes:
            made = await ask(nodes.register, "PUT", name, content_type=TEXT, **wanted, **maker)
            assert made.status == 403
            assert (await ask(nodes.register, "HEAD", name, **owner)).status == 404


@pytest.mark.parametrize("order", ["~subscriptions - 0", "a/b - 0", "orders", "x"])
async def test_no_internal_log_is_copied_into_a_stream(tmp_path: Path, order: str) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.brokers[0]
        await ask(url, "PUT", "mine", content_type=TEXT)
        copied = await ask(url, "POST", "mine", b"", octopi_fork=order)
        assert (copied.status, b"no fork" in copied.body) == (400, True), copied
        assert (await ask(url, "GET", "mine")).body == b""


async def test_a_request_to_upgrade_has_no_body_below_streams_either(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes, await connect(nodes.register) as stream:
        await stream.send_all(
            b"GET /v1/streams/orders HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\n"
            b"connection: upgrade\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\ncontent-length: 5\r\n\r\nhello"
        )
        assert (await receive_until(stream, b"\r\n\r\n")).startswith(b"HTTP/1.1 400 ")


async def test_a_fork_has_its_content_also_if_its_node_failed_after_creating_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.register
        await ask(url, "PUT", "source", b'["a"]', content_type=JSON)
        whole = RegisterStreams._fill_fork

        async def failing(self: RegisterStreams, *_: object) -> Any:  # noqa: ANN401
            raise NotReadyError("the register fails here")

        monkeypatch.setattr(RegisterStreams, "_fill_fork", failing)
        wanted: Any = {"content_type": JSON, "stream_forked_from": "/v1/streams/source"}
        assert (await ask(url, "PUT", "fork", b'["b"]', **wanted)).status == 503
        monkeypatch.setattr(RegisterStreams, "_fill_fork", whole)
        for _ in range(2):
            made = await ask(url, "PUT", "fork", b'["b"]', **wanted)
            assert made.status == 200, made.body
            assert json.loads((await ask(url, "GET", "fork")).body) == ["a", "b"]


async def test_a_fork_and_its_own_first_content_are_written_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = 0
    write = StreamWriter.write

    async def counted(self: StreamWriter, *arguments: Any) -> Any:  # noqa: ANN401
        nonlocal writes
        writes += 1
        return await write(self, *arguments)

    async with serving_nodes(tmp_path) as nodes:
        url = nodes.register
        source = await ask(url, "PUT", "source", b"one ", content_type=TEXT)
        monkeypatch.setattr(StreamWriter, "write", counted)
        made = await ask(
            url, "PUT", "fork", b"two", content_type=TEXT, stream_forked_from="/v1/streams/source"
        )
        assert (made.status, writes) == (201, 1)
        assert (await ask(url, "GET", "fork")).body == b"one two"
        behind = await ask(url, "GET", f"fork?offset={source.next_offset}")
        assert behind.body == b"two"


async def test_an_offset_of_a_deleted_stream_is_none_of_its_successor(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.register
        former = await ask(url, "PUT", "orders", b"old", content_type=TEXT)
        assert (await ask(url, "DELETE", "orders")).status == 204
        with trio.fail_after(20):
            while (
                made := await ask(url, "PUT", "orders", b"new", content_type=TEXT)
            ).status != 201:
                assert made.status == 503
        await ask(url, "POST", "orders", b"er", content_type=TEXT)
        for live in ("", "&live=long-poll", "&live=sse"):
            read = await ask(url, "GET", f"orders?offset={former.next_offset}{live}")
            assert read.status == 410, read
        forked = await ask(
            url, "PUT", "fork", stream_forked_from="/v1/streams/orders",
            stream_fork_offset=former.next_offset,
        )  # fmt: skip
        assert forked.status in {400, 410}
        now = await ask(url, "GET", f"orders?offset={made.next_offset}")
        assert (now.status, now.body) == (200, b"er")
