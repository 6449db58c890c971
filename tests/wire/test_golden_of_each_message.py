"""The bytes of a message of each type are fixed, in `golden_messages.txt` (`tests.wire.golden`)."""

from __future__ import annotations

import cbor2
import pytest

from octopi.wire.codec import decode, encode
from octopi.wire.messages import MESSAGES
from tests.wire.golden import FILE, entry, golden

GOLDEN = golden()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_each_type_has_the_bytes_that_clients_rely_on(name: str) -> None:
    assert name in GOLDEN, (
        f"the message {name} has no bytes in {FILE.name}: "
        f"python -m tests.wire.golden {name} >> tests/wire/{FILE.name}"
    )
    shown, data = GOLDEN[name]
    assert repr(cbor2.loads(data)) == shown
    assert encode(decode(data, frozenset({MESSAGES[name]}))).hex() == data.hex()


def test_the_golden_file_has_only_existing_message_types() -> None:
    assert GOLDEN.keys() <= MESSAGES.keys()


@pytest.mark.parametrize("name", MESSAGES)
def test_a_golden_entry_can_be_made_for_each_message_type(name: str) -> None:
    assert entry(name).startswith(f"{name}\n{{'type': '{name}'")
