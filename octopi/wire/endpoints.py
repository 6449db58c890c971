"""The endpoints: paths of the WebSocket upgrade, and who may send what there.

A connection belongs to one endpoint for its whole life.  ``hello``, ``heartbeat`` and
``failure`` belong to all of them, ``challenge`` and ``proof`` to the opening of those for nodes
alone; the table has the rest.
"""

from __future__ import annotations

from typing import Final

import attrs

from octopi.limits import (
    HEARTBEAT_INTERVAL_S,
    HEARTBEAT_TIMEOUT_S,
    MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
)
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
    heartbeat_interval_s: float
    """Each side sends something at least so often."""
    heartbeat_timeout_s: float
    """Each side gives the connection up after silence for so long."""
    is_for_nodes: bool = False
    """Both sides have to prove that they belong to the cluster (`octopi.security.join_secret`)."""


EVERYWHERE: Final = frozenset({m.Hello, m.Challenge, m.Proof, m.Welcome, m.Heartbeat, m.Failure})

REQUESTS: Final = frozenset(
    {
        m.Authenticate,
        m.DescribeTopic,
        m.CreateTopic,
        m.DeleteTopic,
        m.DeleteTopicById,
        m.ListTopics,
        m.DescribeCluster,
        m.DescribeEvents,
        m.DrainBroker,
        m.AddPartitions,
        m.MoveReplica,
        m.RecoverPartition,
        m.RemoveBroker,
        m.Produce,
        m.FindOffset,
        m.Fetch,
        m.Subscribe,
        m.DescribeLogs,
        m.DescribeSubscriptions,
        m.Join,
        m.InstallPartitions,
        m.InstallTopics,
        m.RemoveTopics,
        m.Stopping,
        m.PrepareHandOver,
    }
)
"""Messages that take a request number into use until it is answered."""

NOTICES: Final = frozenset(
    {
        m.Inventory,
        m.Credit,
        m.Unsubscribe,
        m.Follow,
        m.Followed,
        m.FollowRefused,
        m.Replicate,
        m.Acknowledge,
        m.AnnounceEpoch,
        m.AcceptEpoch,
        m.AlterInSync,
        m.Resign,
        m.Goodbye,
        m.BrokersStopping,
        m.BrokerStatus,
        m.InSyncAltered,
    }
)
"""Messages about what is there already.  What is neither here nor in `REQUESTS` is an
answer, or belongs to the connection itself."""

CLIENT: Final = Endpoint(
    path="/v1/client",
    to_register=frozenset(
        {
            m.Authenticate,
            m.DescribeTopic,
            m.CreateTopic,
            m.DeleteTopic,
            m.DeleteTopicById,
            m.DeleteTopicById,
            m.ListTopics,
            m.DescribeCluster,
            m.DescribeEvents,
            m.DrainBroker,
            m.AddPartitions,
            m.MoveReplica,
            m.RecoverPartition,
            m.RemoveBroker,
        }
    ),
    to_broker=frozenset(
        {
            m.Authenticate,
            m.Produce,
            m.FindOffset,
            m.Fetch,
            m.Subscribe,
            m.Credit,
            m.Unsubscribe,
            m.DescribeLogs,
            m.DescribeSubscriptions,
        }
    ),
    back=frozenset(
        {
            m.Authenticated,
            m.TopicDescription,
            m.TopicList,
            m.ClusterDescription,
            m.PartitionRecovery,
            m.EventList,
            m.Produced,
            m.FoundOffset,
            m.Fetched,
            m.Subscribed,
            m.Delivery,
            m.LogList,
            m.SubscriptionList,
            m.Done,
        }
    ),
    heartbeat_interval_s=HEARTBEAT_INTERVAL_S,
    heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S,
)
"""Producers, consumers and whoever looks at the cluster."""

MEMBERSHIP: Final = Endpoint(
    path="/v1/membership",
    to_register=frozenset(
        {
            m.Inventory,
            m.Join,
            m.OrderCarriedOut,
            m.AcceptEpoch,
            m.AlterInSync,
            m.Resign,
            m.Stopping,
            m.Done,
            m.Goodbye,
            m.BrokerStatus,
        }
    ),
    to_broker=frozenset(),
    back=frozenset(
        {
            m.Joined,
            m.InstallPartitions,
            m.InstallTopics,
            m.RemoveTopics,
            m.AnnounceEpoch,
            m.InSyncAltered,
            m.BrokersStopping,
            m.PrepareHandOver,
            m.Done,
        }
    ),
    heartbeat_interval_s=MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    heartbeat_timeout_s=MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A broker at its register: silence on this connection means that the broker has failed."""

FOLLOW: Final = Endpoint(
    path="/v1/follow",
    to_register=frozenset(),
    to_broker=frozenset({m.Follow, m.Acknowledge}),
    back=frozenset({m.Followed, m.FollowRefused, m.Replicate}),
    heartbeat_interval_s=MEMBERSHIP_HEARTBEAT_INTERVAL_S,
    heartbeat_timeout_s=MEMBERSHIP_HEARTBEAT_TIMEOUT_S,
    is_for_nodes=True,
)
"""A follower at its leader: one connection for each partition that it follows there."""
