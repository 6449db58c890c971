"""The broker: logs on disk, producers and consumers."""
