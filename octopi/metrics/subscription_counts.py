"""What a broker counts of durable subscriptions."""

from __future__ import annotations

from octopi.metrics.labelled_counter import SERIES_COUNT_MAX, LabelledCounter


class SubscriptionCounts:
    """The counters of one broker: by topic, subscription and partition, but for `rebalances`."""

    def __init__(self, series_max: int = SERIES_COUNT_MAX) -> None:
        """*series_max*: labels of each counter that have series of their own."""
        self.marks_stored = LabelledCounter(series_max)
        """Marks that were committed, the first one of a log included; at the leader of the log."""
        self.fenced = LabelledCounter(series_max)
        """Members that were told MEMBER_FENCED; at the leader that told them."""
        self.lost_bytes = LabelledCounter(series_max)
        """What a log had no more when a member came to read it; at the leader of the log."""
        self.redelivered = LabelledCounter(series_max)
        """Messages of queues that were dealt again; at the leader of the log."""
        self.rebalances = LabelledCounter(series_max)
        """Logs that were given to a member; by topic and subscription, at the coordinator."""
