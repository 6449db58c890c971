"""The client library: producers, consumers, and questions about the cluster.

From below: sessions (`producer_session`, `consumer_session`) decide without I/O, drivers
(`log_sender`, `log_subscriber`) bring them to connections, `producer` and `consumer` are
what programs use, `client` makes them.
"""
