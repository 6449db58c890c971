"""What the browser tests share: one Node for the client's modules."""

from collections.abc import Iterator

import pytest

from tests.browser.tools import NodePeer


@pytest.fixture(scope="module")
def node() -> Iterator[NodePeer]:
    """Node with the client's modules."""
    peer = NodePeer()
    yield peer
    peer.close()
