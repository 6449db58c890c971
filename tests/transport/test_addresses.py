"""Addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from octopi.errors import InvalidOptionError
from octopi.transport.addresses import (
    host_and_port,
    is_secure,
    listen_address,
    server_address,
    server_url,
)


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:7000", "127.0.0.1", 7000),
        ("broker-1.example:0", "broker-1.example", 0),
        ("[::1]:7000", "::1", 7000),
        (":7000", "", 7000),
        ("broker.example.:7000", "broker.example.", 7000),
        ("localhost:65535", "localhost", 65535),
    ],
)
def test_a_valid_address_to_listen_at_is_read(address: str, host: str, port: int) -> None:
    assert listen_address(address) == (host, port)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "7000",
        "host",
        "host:",
        "host:seven",
        "host:65536",
        "host:-1",
        "host:80:80",
        "::1:7000",
        "[::1",
        "[nonsense]:1",
        "[v1.x:]:1",
        "user@host:1",
        "host:1/path",
        "host:1?x",
        "ho st:1",
        "höst:1",
        "host..example:1",
        ".:1",
        f"{'h' * 64}:1",
        f"{'h.' * 127}:1",
        "ws://host:1",
    ],
)
def test_an_invalid_address_to_listen_at_is_refused(address: str) -> None:
    with pytest.raises(InvalidOptionError, match="write host:port"):
        listen_address(address)


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("ws://127.0.0.1:7000", "127.0.0.1", 7000),
        ("ws://127.0.0.1:7000/", "127.0.0.1", 7000),
        ("ws://[::1]:7000", "::1", 7000),
    ],
)
def test_a_valid_url_of_a_node_is_read(url: str, host: str, port: int) -> None:
    assert server_address(url) == (host, port)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:7000",
        "ws:127.0.0.1:7000",
        "ws://",
        "ws://:7000",
        "ws://host",
        "ws://host:0",
        "http://host:7000",
        "ws://host:7000/v1/client",
        "ws://host:7000//",
        "ws://a b:7000",
        "ws://a\r\nHost:7000",
    ],
)
def test_an_invalid_url_of_a_node_is_refused(url: str) -> None:
    with pytest.raises(InvalidOptionError, match="write ws://host:port"):
        server_address(url)


def test_a_url_says_whether_to_speak_tls() -> None:
    assert server_address("wss://host:7000") == ("host", 7000)
    assert is_secure("wss://host:7000")
    assert not is_secure("ws://wss:7000")
    assert server_url("0.0.0.0", 7000, secure=True) == "wss://localhost:7000"


@given(st.text())
def test_any_text_is_read_as_an_address_or_refused(text: str) -> None:
    for read in (listen_address, server_address):
        for candidate in (text, f"ws://{text}:1"):
            try:
                host, port = read(candidate)
            except InvalidOptionError:
                continue
            assert listen_address(host_and_port(host, port)) == (host, port)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "ws://127.0.0.1:7000"),
        ("::1", "ws://[::1]:7000"),
        ("", "ws://localhost:7000"),
        ("0.0.0.0", "ws://localhost:7000"),
        ("::", "ws://localhost:7000"),
    ],
)
def test_programs_on_this_machine_get_an_address_that_they_can_reach(host: str, url: str) -> None:
    assert server_url(host, 7000) == url
