"""Messages of version 1 of the protocol, which nodes of the release before send and understand.

`version_1_messages.txt` has a line for each type, with a value in each field, and a further line
without the fields that may be missing.  The file never changes: when a version is no longer spoken
(`PROTOCOL_VERSION_MIN`), it is removed, with this module.
"""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from octopi.wire.codec import decode, encode
from octopi.wire.declarations import DECLARATIONS
from octopi.wire.messages import (
    MESSAGES,
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_MIN,
    BrokerInfo,
    ClusterDescription,
    Hello,
)

FILE = Path(__file__).with_name("version_1_messages.txt")
LINES = [line.split() for line in FILE.read_text(encoding="ascii").splitlines()]


@pytest.mark.parametrize(
    ("name", "data"), LINES, ids=[f"{place} {name}" for place, (name, _) in enumerate(LINES)]
)
def test_a_message_of_version_1_is_understood_and_written_with_the_same_bytes(
    name: str, data: str
) -> None:
    message = decode(bytes.fromhex(data), frozenset({MESSAGES[name]}))
    assert encode(message).hex() == data


def test_all_messages_of_version_1_are_there_and_later_ones_say_since_when_they_are() -> None:
    of_version_1 = {name for name, _ in LINES}
    declared = {one.name: one.since for one in DECLARATIONS.values()}
    assert {name for name, since in declared.items() if since == 1} == of_version_1
    assert max(declared.values()) <= PROTOCOL_VERSION
    assert PROTOCOL_VERSION_MIN == 1


def test_missing_fields_of_an_older_node_have_their_defaults() -> None:
    least = bytes.fromhex(next(data for name, data in reversed(LINES) if name == "hello"))
    hello = decode(least, frozenset({Hello}))
    assert isinstance(hello, Hello)
    assert (hello.version, hello.nonce, hello.name) == (1, b"", "")
    least = bytes.fromhex(
        next(data for name, data in reversed(LINES) if name == "cluster_description")
    )
    told = decode(least, frozenset({ClusterDescription}))
    assert isinstance(told, ClusterDescription)
    assert (told.learns, told.learns_from, told.unserved) == ([], [], [])
    for broker in told.brokers:
        assert broker.disk_free_bytes is None
        assert attrs.evolve(broker, disk_trouble="") == broker
    assert all(isinstance(one, BrokerInfo) for one in told.brokers)
