"""Streams over HTTP at a broker, which serves those that it leads."""
