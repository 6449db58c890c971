"""Replication of partitions: how logs are led and followed.  Decisions only, no I/O."""
