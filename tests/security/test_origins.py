"""Pages and names: cross-site WebSocket hijacking and DNS rebinding."""

import pytest
from hypothesis import given, strategies as st

from octopi.security.origins import (
    LOOPBACK_ORIGINS,
    allowed_place,
    is_loopback,
    may_come_from,
    names_us,
    place_of,
)

MEMBERS = ["ws://127.0.0.1:7000", "wss://b1.example:7001"]


@pytest.mark.parametrize(
    ("origin", "host", "secure", "expected"),
    [
        ("http://127.0.0.1:7003", "127.0.0.1:7003", False, True),
        ("http://localhost:7003", "127.0.0.1:7003", False, True),
        ("http://[::1]:7003", "localhost:7003", False, True),
        ("http://LOCALHOST.:7003", "localhost:7003", False, True),
        ("http://localhost:7000", "localhost:7003", False, True),  # the register's page
        ("https://b1.example:7001", "b2.example:7001", True, True),
        ("https://node.example", "node.example", True, True),
        ("http://node.example", "node.example:80", False, True),
        ("https://app.example", "node.example", True, True),
        ("http://app.example", "node.example", True, False),
        ("https://app.example:444", "node.example", True, False),
        ("http://localhost:3000", "localhost:7003", False, False),
        ("http://evil.example", "127.0.0.1:7003", False, False),
        ("http://127.0.0.1.evil.example:7003", "127.0.0.1:7003", False, False),
        ("http://127.0.0.1:7003@evil.example", "127.0.0.1:7003", False, False),
        ("http://b1.example:7001.evil.example", "b2.example:7001", False, False),
        ("null", "127.0.0.1:7003", False, False),
        ("", "127.0.0.1:7003", False, False),
        ("file://", "127.0.0.1:7003", False, False),
        ("chrome-extension://abc", "127.0.0.1:7003", False, False),
        ("http://[:7003", "127.0.0.1:7003", False, False),
        ("http://a:99999", "a:99999", False, False),
    ],
)
def test_a_page_connects_if_the_cluster_serves_it_or_its_origin_is_allowed(
    origin: str, host: str, secure: bool, expected: bool
) -> None:
    allowed = ["https://app.example"]
    found = may_come_from(origin, host, is_secure=secure, members=MEMBERS, allowed=allowed)
    assert found is expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost:7000", True),
        ("127.0.0.1", True),
        ("127.8.8.8:7000", True),
        ("[::1]:7000", True),
        ("10.0.0.5:7000", True),
        ("b1.example:7001", True),
        ("app.example", True),
        ("evil.example:7000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:7000", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_foreign_host_name_does_not_belong_to_the_cluster(host: str, expected: bool) -> None:
    assert names_us(host, MEMBERS, ["https://app.example"]) is expected


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:5173", True),
        ("http://localhost", True),
        ("http://127.0.0.1:3000", True),
        ("http://[::1]:3000", True),
        ("https://localhost:5173", False),
        ("http://app.localhost:5173", False),
        ("http://localhost.evil.example:5173", False),
        ("http://localhost:5173.evil.example", False),
        ("http://localhost@evil.example:5173", False),
        ("http://evil.example:5173", False),
        ("http://localhost:*", False),
        ("http://10.0.0.5:5173", False),
        ("http://staging.example:81", True),
        ("http://staging.example", True),
        ("https://staging.example:81", False),
        ("null", False),
    ],
)
def test_an_origin_may_be_allowed_at_every_port_but_with_its_scheme_and_host(
    origin: str, expected: bool
) -> None:
    allowed = [*LOOPBACK_ORIGINS, "HTTP://staging.example:*"]
    found = may_come_from(origin, "127.0.0.1:7003", is_secure=False, members=[], allowed=allowed)
    assert found is expected


def test_a_host_that_is_allowed_at_every_port_is_one_of_the_cluster() -> None:
    assert names_us("staging.example:7003", [], ["http://staging.example:*"])
    assert not names_us("evil.example:7003", [], ["http://staging.example:*"])


@pytest.mark.parametrize("origin", ["http://*", "http://*:*", "http://*.example", "*", ":*", "a:*"])
def test_no_other_pattern_is_an_origin(origin: str) -> None:
    assert allowed_place(origin) is None


def test_a_loopback_address_is_one_that_only_this_machine_reaches() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "localhost", "::1", "127.1.2.3"]))
    assert not any(map(is_loopback, ["", "0.0.0.0", "::", "10.0.0.1", "localhost.example"]))


@given(st.text(), st.text())
def test_any_text_can_be_checked_as_host_and_origin(one: str, other: str) -> None:
    place_of(one)
    names_us(one, [other], [one])
    may_come_from(one, other, is_secure=False, members=[one], allowed=[other, f"{other}:*"])
