"""Octopi: a WebSocket-native replicated log."""
