"""octopi.js says which versions of the protocol it speaks, and keeps to the one a node names."""

from __future__ import annotations

import pytest

from octopi.wire.admin import AlterTopic
from octopi.wire.common import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from octopi.wire.declarations import DECLARATIONS
from tests.browser.test_entrances import REGISTER, Nodes, ask
from tests.browser.tools import NodePeer

SPOKEN = range(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION + 1)


def played(version: int) -> Nodes:
    return {REGISTER: {"role": "register", "version": version}}


@pytest.mark.parametrize("version", SPOKEN)
def test_each_version_that_python_speaks_is_spoken_and_the_newest_is_said(
    node: NodePeer, version: int
) -> None:
    seen = ask(node, played(version), REGISTER)
    assert seen["results"] == [[REGISTER]]
    assert seen["said"] == [PROTOCOL_VERSION]


@pytest.mark.parametrize("version", [SPOKEN.start - 1, SPOKEN.stop])
def test_another_version_is_refused(node: NodePeer, version: int) -> None:
    [result] = ask(node, played(version), REGISTER)["results"]
    assert result["code"] == "unsupported_version"
    assert f"version {version} " in result["message"]


@pytest.mark.parametrize("version", SPOKEN)
def test_the_console_alters_no_topic_at_a_node_that_does_not_know_how(
    node: NodePeer, version: int
) -> None:
    seen = node.ask("alter", {"nodes": played(version), "given": [REGISTER]})
    is_known = version >= DECLARATIONS[AlterTopic].since
    assert (REGISTER in seen["asked"]) == is_known, "it was sent"
    assert (seen["code"] == "unsupported_version") == (not is_known)
