"""Messages in which each node answers for itself, whatever its role."""

from __future__ import annotations

import attrs

from octopi.wire.common import Agent
from octopi.wire.declarations import (
    ANY_TOKEN,
    CLIENT_TO_DECIDER,
    CLIENT_TO_LEADER,
    TO_CLIENT,
    answer,
    request,
)


@request("describe_node", CLIENT_TO_DECIDER, CLIENT_TO_LEADER, needs=ANY_TOKEN, since=2)
@attrs.frozen
class DescribeNode:
    """Ask the node at the other end about itself.  Answer: `NodeDescription`."""

    request: int


@answer("node_description", TO_CLIENT, since=2)
@attrs.frozen
class NodeDescription:
    """Answer to `DescribeNode`."""

    request: int
    agent: Agent
    """The node's program and version."""
    uptime_ms: int
    """How long ago it began to serve."""
