"""Durable subscriptions: marks beside their logs, and groups of members.

All of it decides and does no I/O.  The leader of a partition has one
`octopi.subscriptions.partition_subscriptions.PartitionSubscriptions` for it; what that keeps lies
in the partition's internal log ``~subscriptions``.  Each call is an event; the result is a list of
effects (`octopi.subscriptions.effects`), which the caller performs in order.
"""
