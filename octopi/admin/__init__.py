"""A node's HTTP pages: its health, its view of the cluster, and its metrics."""
