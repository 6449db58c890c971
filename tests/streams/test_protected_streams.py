"""Streams at nodes with TLS that require tokens."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.admin.nodes import serving_nodes
from tests.admin.test_protected_nodes import certificates, token, with_tokens
from tests.security.tokens import key_ring
from tests.streams.http_client import ask

TEXT = "text/plain"


def bearer(**wanted: str) -> dict[str, Any]:
    """The header with a token that grants what is *wanted*."""
    granted: dict[str, Any] = dict(wanted)
    return {"authorization": f"Bearer {token('app', **granted)}"}


async def test_a_token_is_checked_where_the_stream_is_served_whichever_node_is_asked(
    tmp_path: Path,
) -> None:
    files = certificates(tmp_path)
    common = with_tokens(tmp_path, files.settings)
    tls: ssl.SSLContext = files.context()
    async with serving_nodes(tmp_path, 2, common=common) as nodes:
        for url in (nodes.register, *nodes.brokers):
            maker, writer = bearer(create="orders"), bearer(publish="orders")
            made = await ask(url, "PUT", "orders", tls=tls, content_type=TEXT, **maker)
            assert made.status in {200, 201}, made.body
            made = await ask(url, "POST", "orders", b"x", tls=tls, content_type=TEXT, **writer)
            assert made.status == 204
            for method, body, granted in (
                ("GET", b"", "publish"),
                ("POST", b"x", "subscribe"),
                ("PUT", b"", "publish"),
                ("DELETE", b"", "create"),
            ):
                wrong = bearer(**{granted: "orders"})
                denied = await ask(url, method, "orders", body, tls=tls, content_type=TEXT, **wrong)
                assert (method, denied.status) == (method, 403)
            assert (await ask(url, "GET", "orders", tls=tls)).status == 401
            made = await ask(url, "GET", "orders", tls=tls, authorization="Bearer no-token")
            assert made.status == 401
            hidden = await ask(url, "GET", "secret", tls=tls, **bearer(subscribe="orders"))
            assert hidden.status == 403
        reader = bearer(subscribe="orders")
        assert (await ask(nodes.register, "GET", "orders", tls=tls, **reader)).body == b"xxx"
        owner = bearer(admin="orders")
        assert (await ask(url, "DELETE", "orders", tls=tls, **owner)).status == 204


async def test_an_expired_token_and_a_used_up_quota_are_refused(tmp_path: Path) -> None:
    common = attrs.evolve(
        with_tokens(tmp_path, certificates(tmp_path).settings),
        tls_cert="", tls_key="", tls_ca="", token_stored_bytes=100,
    )  # fmt: skip
    async with serving_nodes(tmp_path, common=common) as nodes:
        url = nodes.brokers[0]
        expired = key_ring().sign("app", {"subscribe": ["*"]}, 1_700_000_000_000, 1.0)
        old: dict[str, Any] = {"authorization": f"Bearer {expired}"}
        assert (await ask(url, "GET", "orders", **old)).status == 401
        mine = bearer(create="*", publish="*", subscribe="*")
        await ask(url, "PUT", "orders", content_type=TEXT, **mine)
        sent = await ask(url, "POST", "orders", b"x" * 80, content_type=TEXT, **mine)
        assert sent.status == 204
        more = await ask(url, "POST", "orders", b"x" * 80, content_type=TEXT, **mine)
        assert more.status == 429
        assert (await ask(url, "GET", "orders", **mine)).body == b"x" * 80


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "null"])
async def test_a_page_that_may_not_connect_may_not_read_either(tmp_path: Path, origin: str) -> None:
    async with serving_nodes(tmp_path) as nodes:
        url = nodes.register
        own = url.replace("ws://", "http://")
        await ask(url, "PUT", "orders", b"x", content_type=TEXT)
        refused = await ask(url, "GET", "orders", origin=origin)
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers
        preflight = await ask(url, "OPTIONS", "orders", origin=origin)
        assert "access-control-allow-origin" not in preflight.headers
        allowed = await ask(url, "GET", "orders", origin=own)
        assert allowed.headers["access-control-allow-origin"] == own
        assert "stream-next-offset" in allowed.headers["access-control-expose-headers"]
