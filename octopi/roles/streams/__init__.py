"""Streams over HTTP: what brokers and registers share."""
