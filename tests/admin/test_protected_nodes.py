"""Nodes as operators protect them: TLS, tokens and origins, through the pages and the protocol."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio
import trustme
from prometheus_client.parser import text_string_to_metric_families

import octopi
from octopi.cli.config import NodeSettings, join_secret_in
from octopi.cli.failures import CommandError
from octopi.cli.node_security import protection
from octopi.cli.secret_files import secret_of_broker
from octopi.cli.token_file import TokenFile
from octopi.clients.credentials import Credentials
from octopi.errors import InvalidOptionError, RefusedError, Status, UnreachableError
from octopi.operating_system import SystemClock
from octopi.security.tls import tls_of_client, tls_of_node
from octopi.security.tokens import secret_key
from octopi.transport.handshake import NodeCredentials, open_connection, open_node_connection
from octopi.wire.endpoints import CLIENT, MEMBERSHIP
from tests.admin.nodes import ask, serving_nodes
from tests.kit.cluster import system_environment
from tests.security.tokens import SECRET, key_ring

UPGRADE = {
    "upgrade": "websocket",
    "connection": "upgrade",
    "sec_websocket_key": "dGhlIHNhbXBsZSBub25jZQ==",
    "sec_websocket_version": "13",
    "sec_websocket_protocol": "octopi.v1.cbor",
}


async def upgrade(url: str, **headers: str) -> int:
    """The status that an upgrade with *headers* is answered with."""
    fields = UPGRADE | headers
    return (await ask(url, "/v1/client", **fields)).status  # type: ignore[arg-type]


def token(subject: str = "somebody", ttl_s: float | None = 3600, **wanted: str) -> str:
    patterns = {verb: text.split() for verb, text in wanted.items()}
    return key_ring().sign(subject, patterns, SystemClock().wall_ms(), ttl_s)


@attrs.frozen
class Files:
    """What `octopi-node tls dev-ca` and `token` would have made."""

    ca: str
    cert: str
    key: str

    @property
    def settings(self) -> NodeSettings:
        return NodeSettings(tls_cert=self.cert, tls_key=self.key, tls_ca=self.ca)

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca)


def certificates(directory: Path, name: str = "tls") -> Files:
    authority = trustme.CA()
    cert = authority.issue_cert("127.0.0.1")
    folder = directory / name
    folder.mkdir()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    cert.private_key_pem.write_to_path(folder / "node.key")
    for blob in cert.cert_chain_pems:
        blob.write_to_path(folder / "node.pem", append=True)
    return Files(*(str(folder / name) for name in ("ca.pem", "node.pem", "node.key")))


def with_tokens(directory: Path, settings: NodeSettings, **granted: str) -> NodeSettings:
    """*settings* that also ask for tokens; *granted*: what a node's own one grants beside
    ``replicate``."""
    keys, own = directory / "keys.json", directory / "node.token"
    keys.write_text(json.dumps({"keys": [secret_key("test", SECRET)]}))
    own.write_text(token("node", None, replicate="*", **granted) + "\n")
    return attrs.evolve(settings, auth_keys=str(keys), token_file=str(own))


@contextmanager
def refused(status: Status) -> Iterator[None]:
    with pytest.raises(RefusedError) as caught:
        yield
    assert caught.value.status is status


# --- TLS -------------------------------------------------------------------------------


async def test_clients_and_pages_use_a_cluster_over_tls_and_with_tokens(tmp_path: Path) -> None:
    """Register, three brokers, the client, pages and metrics; tokens on top."""
    files = certificates(tmp_path)
    common = with_tokens(tmp_path, files.settings)
    mine = token("app", create="orders", publish="orders", subscribe="*")
    async with serving_nodes(tmp_path, 3, common=common) as nodes:
        assert all(url.startswith("wss://127.0.0.1:") for url in (nodes.register, *nodes.brokers))
        async with octopi.connect(nodes.register, token=mine, tls_ca=files.ca) as client:
            async with client.producer() as producer:
                for number in range(50):
                    receipt = await producer.send("orders", b"%d" % number)
            async with client.consumer("orders", start="earliest", stop_at_end=True) as consumer:
                assert [int(one.value) async for one in consumer] == list(range(50))
            with trio.fail_after(20):  # a follower may have been late for the first election
                while len((await client.describe_topic("orders")).partitions[0].in_sync) != 3:  # noqa: ASYNC110
                    await trio.sleep(0.05)  # nothing announces it to clients
        context, bearer = files.context(), f"Bearer {mine}"
        for url in (nodes.register, *nodes.brokers):
            page = await ask(url, "/metrics", tls=context, authorization=bearer)
            families = {one.name: one for one in text_string_to_metric_families(page.body.decode())}
            assert families["octopi_ready"].samples[0].value == 1
            if url != nodes.register:
                ends = families["octopi_log_end_bytes"].samples
                [end] = [one for one in ends if one.labels["topic"] == "orders"]
                assert end.value == receipt.next_offset
            cluster = (await ask(url, "/api/v1/cluster", tls=context, authorization=bearer)).json
            assert [one["address"] for one in cluster["brokers"]] == nodes.brokers
            assert cluster["problems"] == []


async def test_a_client_without_tls_or_the_authority_of_the_cluster_can_not_connect(
    tmp_path: Path,
) -> None:
    files, others = certificates(tmp_path), certificates(tmp_path, "others")
    async with serving_nodes(tmp_path, 0, common=files.settings) as nodes:
        plain = nodes.register.replace("wss://", "ws://")
        for url, authority, why in (
            (plain, None, "did not complete"),
            (nodes.register, others.ca, "not to be trusted"),
            (nodes.register.replace("127.0.0.1", "localhost"), files.ca, "not to be trusted"),
        ):
            async with octopi.connect(url, tls_ca=authority, request_timeout_s=0.5) as client:
                with pytest.raises(UnreachableError, match=why):
                    await client.topics()
        async with octopi.connect(nodes.register, tls_ca=files.ca) as client:
            assert await client.topics() == []


async def test_a_broker_without_a_certificate_of_the_cluster_can_not_join(tmp_path: Path) -> None:
    files, others = certificates(tmp_path), certificates(tmp_path, "others")
    async with serving_nodes(tmp_path, 0, common=files.settings) as nodes:
        stranger = tls_of_client(files.ca)
        impostor = tls_of_node(others.cert, others.key, None)
        impostor.client.load_verify_locations(files.ca)
        member = tls_of_node(files.cert, files.key, files.ca)
        for tls, welcome in ((stranger, False), (impostor, False), (member, True)):
            async with trio.open_nursery() as nursery:
                here = system_environment(nursery, tls)
                if tls is not impostor:  # whom TLS itself turns away
                    connection = await open_connection(here, nodes.register, CLIENT, "test")
                    await connection.close()
                # With the join secret, which is asked for besides the certificate.
                secret = secret_of_broker(join_secret_in(str(tmp_path / "register")))
                opening = partial(
                    open_node_connection,
                    here,
                    nodes.register,
                    MEMBERSHIP,
                    "test",
                    NodeCredentials(secret),
                )
                if welcome:
                    connection = await opening()
                    await connection.close()
                else:
                    with pytest.raises(UnreachableError):
                        await opening()
                nursery.cancel_scope.cancel()


def test_invalid_certificate_key_and_authority_files_are_refused(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.write_text("nothing")
    files = certificates(tmp_path)
    for cert, key, authority in (
        (str(nothing), files.key, None),
        (files.cert, str(tmp_path / "missing"), None),
        (files.cert, files.key, str(nothing)),
        (files.cert, certificates(tmp_path, "others").key, None),
    ):
        with pytest.raises(InvalidOptionError, match=r"^no (certificate|authority)"):
            tls_of_node(cert, key, authority)
    with pytest.raises(InvalidOptionError, match="no authority"):
        octopi.connect("wss://a:1", tls_ca=str(nothing))


# --- tokens over HTTP --------------------------------------------------------------------


async def test_pages_need_a_token_and_show_what_it_may_know(tmp_path: Path) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    everything = token(create="*", subscribe="*", admin="*")
    async with serving_nodes(tmp_path, common=common) as nodes:
        async with octopi.connect(nodes.register, token=everything) as client:
            for name in ("mine", "theirs"):
                await client.create_topic(name)
        for url in (nodes.register, *nodes.brokers):
            assert (await ask(url, "/healthz")).status == 200
            assert (await ask(url, "/console/")).status == 200
            assert (await ask(url, "/api/v1/status")).json["authentication"] is True
            pages = [f"/api/v1/{name}" for name in ("cluster", "grants", "topics", "topic-search")]
            pages += [f"/api/v1/{name}" for name in ("consumers", "events")]
            for path in (*pages, "/api/v1/nothing", "/metrics"):
                for text in ("", "Bearer", "Basic abc", "Bearer nonsense", f"Bearer {everything}x"):
                    page = await ask(url, path, authorization=text)
                    assert page.status == 401
                    assert page.json["error"]["status"] == "unauthenticated"
                    assert page.headers["www-authenticate"] == "Bearer"
                    assert everything not in page.body.decode()
            late = f"Bearer {key_ring().sign('a', {'subscribe': ['*']}, 0, 1)}"
            assert (await ask(url, "/metrics", authorization=late)).json["error"] == {
                "status": "expired",
                "reason": "the token has expired",
            }
            some = f"bearer {token(publish='mine')}"
            assert (await ask(url, "/metrics", authorization=some)).status == 403
            page = await ask(url, "/api/v1/topics", authorization=some)
            assert [one["topic"] for one in page.json["topics"]] == ["mine"]
            page = await ask(url, "/api/v1/events", authorization=some)
            assert {one["topic"] for one in page.json["events"]} == {"", "mine"}
            page = await ask(url, "/api/v1/topic-search", authorization=some)
            assert [one["topic"] for one in page.json["topics"]] == ["mine"]
            page = await ask(url, "/api/v1/grants", authorization=some)
            assert page.json == {"publish": ["mine"]}
            assert (await ask(url, f"/api/v1/topics?token={everything}")).status == 401


async def test_metrics_may_have_a_listener_without_tokens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    files = certificates(tmp_path)
    common = with_tokens(tmp_path, files.settings)
    common = attrs.evolve(common, metrics_listen=f"127.0.0.1:{port}")
    async with serving_nodes(tmp_path, 0, common=common):
        beside = f"ws://127.0.0.1:{port}"
        assert b"octopi_ready 1.0" in (await ask(beside, "/metrics")).body
        assert (await ask(beside, "/healthz")).status == 200
        assert (await ask(beside, "/readyz")).status == 200
        for path in ("/console/", "/api/v1/status", "/", "/v1/client"):
            assert (await ask(beside, path)).status == 404
        assert await upgrade(beside) == 404


async def test_a_client_whose_function_fetches_fresh_tokens_keeps_its_session(
    tmp_path: Path,
) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    given: list[str] = []

    async def fresh() -> str:
        await trio.lowlevel.checkpoint()
        given.append(token("app", 2 if len(given) < 4 else 3600, create="*", publish="*"))
        return given[-1]

    async with serving_nodes(tmp_path, common=common) as nodes:
        async with (
            octopi.connect(nodes.register, token=fresh) as client,
            client.producer() as producer,
        ):
            for number in range(8):
                await producer.send("orders", b"%d" % number)
                await trio.sleep(0.5)
        assert len(given) >= 4, "once for each connection, and again before each end"


async def test_a_client_without_fresh_tokens_stops(tmp_path: Path) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    async with serving_nodes(tmp_path, common=common) as nodes:
        short = token("app", 2, create="*", subscribe="*", publish="*")
        async with octopi.connect(nodes.register, token=short) as client:
            await client.create_topic("orders")
            async with client.consumer("orders", start="earliest") as consumer:
                with refused(Status.EXPIRED), trio.fail_after(10):
                    await anext(consumer)


async def test_a_broker_reads_its_token_file_again_for_each_connection(
    tmp_path: Path,
) -> None:
    file = tmp_path / "own.token"
    file.write_text("first\n")
    source = TokenFile(str(file))
    assert await Credentials(source).current() == "first"
    file.write_text("second")
    assert source() == "second"
    file.unlink()
    assert source() == "second", "a file that is away changes nothing"
    with pytest.raises(CommandError, match=r"own\.token: No such file"):
        TokenFile(str(file))
    file.write_text("  \n")
    with pytest.raises(CommandError, match=r"own\.token is empty"):
        TokenFile(str(file))


# --- pages from elsewhere ------------------------------------------------------------------


async def test_a_page_of_a_foreign_origin_gets_no_websocket_and_no_answer(tmp_path: Path) -> None:
    """Cross-site WebSocket hijacking, and reading pages across origins."""
    common = NodeSettings(allow_origin="https://app.example, http://other.example:81")
    async with serving_nodes(tmp_path, common=common) as nodes:
        register, [broker] = nodes.register.replace("ws:", "http:"), nodes.brokers
        for url in (nodes.register, broker):
            own = url.replace("ws:", "http:")
            for origin, good in (
                (own, True),
                (own.replace("127.0.0.1", "localhost"), True),
                (register, True),
                ("https://app.example", True),
                ("http://other.example:81", True),
                ("http://other.example", False),
                ("http://evil.example", False),
                ("http://127.0.0.1:1", False),
                ("null", False),
            ):
                assert await upgrade(url, origin=origin) == (101 if good else 403), (url, origin)
                page = await ask(url, "/api/v1/cluster", origin=origin)
                assert page.status == (200 if good else 403)
                # A page that is refused may read that, and nothing else.
                assert page.headers["access-control-allow-origin"] == origin
                assert good or list(page.json) == ["error"]
                allowed = await ask(url, "/api/v1/cluster", method="OPTIONS", origin=origin)
                assert allowed.status == (204 if good else 403)
                names = allowed.headers.get("access-control-allow-headers", "")
                assert names == ("authorization" if good else "")
                page = await ask(url, "/metrics", origin=origin)
                assert page.status == (200 if good else 403)
        assert await upgrade(broker) == 101, "no browser"


@pytest.mark.parametrize(
    ("origin", "reason"),
    [
        (
            "http://evil.example:81",
            "this node refuses pages from http://evil.example:81: start it with --allow-origin "
            "http://evil.example:81",
        ),
        ("null", "this node refuses pages without an http or https origin"),
        ("http://a;reboot", "this node refuses pages without an http or https origin"),
        ("http://a.example\x1b[2J", "this node refuses pages without an http or https origin"),
    ],
)
async def test_a_page_that_is_refused_is_told_what_would_let_it_in(
    tmp_path: Path, origin: str, reason: str
) -> None:
    async with serving_nodes(tmp_path, 0) as nodes:
        page = await ask(nodes.register, "/api/v1/status", origin=origin)
        assert page.status == 403
        assert page.json["error"]["reason"].startswith(reason)
        shared = page.headers.get("access-control-allow-origin")
        assert shared == (origin if origin.isprintable() else None)
        assert page.headers["vary"] == "origin"


async def test_an_origin_that_no_browser_sends_is_refused_and_not_repeated(tmp_path: Path) -> None:
    async with serving_nodes(tmp_path, 0) as nodes:
        place = nodes.register.removeprefix("ws://")
        host, _, port = place.partition(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            head = f"GET /api/v1/status HTTP/1.1\r\nhost: {place}\r\norigin: http://b\xfc.example\r\n\r\n"
            await stream.send_all(head.encode("latin-1"))
            answer = b"".join([piece async for piece in stream])
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"access-control" not in answer
    assert b".example" not in answer


async def test_files_of_the_console_may_be_imported_by_pages_that_may_connect(
    tmp_path: Path,
) -> None:
    common = NodeSettings(allow_origin="https://app.example,http://localhost:*")
    async with serving_nodes(tmp_path, common=common) as nodes:
        for path in ("/console/octopi.js", "/console/client/errors.js", "/console/octopi.d.ts"):
            for origin, good in (
                ("https://app.example", True),
                ("http://localhost:5173", True),
                (nodes.brokers[0].replace("ws:", "http:"), True),
                ("http://evil.example", False),
                ("null", False),
                (None, False),
            ):
                headers = {} if origin is None else {"origin": origin}
                page = await ask(nodes.register, path, **headers)  # type: ignore[arg-type]
                assert page.status == 200, "the files are no secret"
                shared = page.headers.get("access-control-allow-origin")
                assert shared == (origin if good else None)
                assert "origin" in page.headers["vary"], "for caches, with and without one"
                known = page.headers["etag"]
                page = await ask(nodes.register, path, if_none_match=known, **headers)  # type: ignore[arg-type]
                assert page.status == 304
                assert page.headers.get("access-control-allow-origin") == shared
        page = await ask(
            nodes.register,
            "/console/octopi.js",
            origin="http://localhost:5173",
            host="evil.example:7000",
        )
        assert "access-control-allow-origin" not in page.headers, "the host was rebound"


async def test_requests_for_a_rebound_host_name_are_refused(tmp_path: Path) -> None:
    """DNS rebinding: the browser takes the page for ours, so its origin says nothing."""
    async with serving_nodes(tmp_path) as nodes:
        for url in (nodes.register, *nodes.brokers):
            port = url.rpartition(":")[2]
            evil = f"evil.example:{port}"
            for path in ("/api/v1/status", "/api/v1/topics", "/metrics"):
                assert (await ask(url, path, host=evil)).status == 421
            assert await upgrade(url, host=evil, origin=f"http://{evil}") == 421
            assert (await ask(url, "/healthz", host=evil)).status == 200
    common = with_tokens(tmp_path, NodeSettings())
    async with serving_nodes(tmp_path / "guarded", 0, common=common) as nodes:
        page = await ask(nodes.register, "/api/v1/topics", host="evil.example")
        assert page.status == 401, "with tokens the name proves nothing either way"


@pytest.mark.parametrize(
    ("settings", "listen", "why"),
    [
        (NodeSettings(), "0.0.0.0:0", "listen at 127.0.0.1, or add --insecure"),
        (NodeSettings(), ":0", "could do anything"),
        (NodeSettings(tls_cert="a"), "127.0.0.1:0", "need each other"),
        (NodeSettings(tls_ca="a"), "127.0.0.1:0", "give --tls-cert"),
        (NodeSettings(auth_keys="missing.json"), "127.0.0.1:0", "missing.json"),
        (NodeSettings(token_file="missing.token"), "127.0.0.1:0", "missing.token"),
        (NodeSettings(allow_origin="app.example"), "127.0.0.1:0", "is not an origin"),
        (NodeSettings(allow_origin="ws://app.example"), "127.0.0.1:0", "is not an origin"),
        (NodeSettings(allow_origin="http://*:*"), "127.0.0.1:0", "is not an origin"),
    ],
)
def test_settings_that_protect_nothing_are_refused(
    settings: NodeSettings, listen: str, why: str
) -> None:
    with pytest.raises(CommandError) as caught:
        protection(settings, listen)
    assert why in str(caught.value)


def test_a_node_with_the_insecure_option_may_listen_to_the_network_without_tokens() -> None:
    shelter = protection(NodeSettings(insecure=True), "0.0.0.0:7000")
    assert shelter.authenticator is None


def test_an_invalid_key_set_is_refused_with_the_name_of_its_file(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text("{}")
    with pytest.raises(InvalidOptionError, match=r"keys\.json: no key set"):
        protection(NodeSettings(auth_keys=str(file)), "127.0.0.1:0")


async def test_a_token_for_another_cluster_is_refused_by_nodes_and_pages(tmp_path: Path) -> None:
    common = with_tokens(tmp_path, NodeSettings())
    async with serving_nodes(tmp_path, common=common) as nodes:
        cluster = (await ask(nodes.register, "/api/v1/status")).json["cluster"]
        now_ms = SystemClock().wall_ms()
        here, there = (
            key_ring().sign("s", {"subscribe": ["*"]}, now_ms, None, clusters=[one])
            for one in (cluster, "0" * 16)
        )
        for url in (nodes.register, *nodes.brokers):
            for text, status in ((here, 200), (there, 401)):
                page = await ask(url, "/api/v1/events", authorization=f"Bearer {text}")
                assert page.status == status
        async with octopi.connect(nodes.register, token=here) as client:
            await client.topics()
        with pytest.raises(RefusedError, match="not for cluster"):
            async with octopi.connect(nodes.register, token=there) as client:
                await client.topics()
