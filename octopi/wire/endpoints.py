"""The endpoints: paths of the WebSocket upgrade, and who may send what there.

A connection belongs to one endpoint for its whole life.  ``hello``, ``heartbeat`` and
``failure`` belong to all of them; the table has the rest.  Followers will open their
stream at an endpoint of their own, beside these two.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.wire import messages as m


@attrs.frozen
class Endpoint:
    """What one path allows."""

    path: str
    to_register: frozenset[type]
    """Messages that the connecting side may send to a register."""
    to_broker: frozenset[type]
    """Messages that the connecting side may send to a broker."""
    back: frozenset[type]
    """Messages that the node may send back."""


EVERYWHERE: Final = frozenset({m.Hello, m.Welcome, m.Heartbeat, m.Failure})

CLIENT: Final = Endpoint(
    path="/v1/client",
    to_register=frozenset(
        {m.DescribeTopic, m.CreateTopic, m.DeleteTopic, m.ListTopics, m.DescribeCluster}
    ),
    to_broker=frozenset(
        {
            m.Produce,
            m.FindOffset,
            m.Fetch,
            m.Subscribe,
            m.Credit,
            m.Unsubscribe,
            m.DescribeLogs,
        }
    ),
    back=frozenset(
        {
            m.TopicDescription,
            m.TopicList,
            m.ClusterDescription,
            m.Produced,
            m.FoundOffset,
            m.Fetched,
            m.Subscribed,
            m.Delivery,
            m.LogList,
            m.Done,
        }
    ),
)
"""Producers, consumers and whoever looks at the cluster."""

MEMBERSHIP: Final = Endpoint(
    path="/v1/membership",
    to_register=frozenset({m.Inventory, m.Join, m.Done}),
    to_broker=frozenset(),
    back=frozenset({m.Joined, m.InstallPartitions, m.InstallTopics, m.RemoveTopic, m.Done}),
)
"""A broker at its register: silence on this connection means that the broker has failed."""
