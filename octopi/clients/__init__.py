"""The client library: producers, consumers, subscriptions, and requests about the cluster.

From the bottom up: sessions (`producer_session`, `consumer_session`) decide without I/O.  Drivers
(`log_sender`, `log_subscriber`) perform what the sessions decide, on connections.  Programs use
`producer` and `consumer`, which `client` makes.
"""
