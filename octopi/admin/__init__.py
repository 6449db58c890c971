"""What a node tells over HTTP: whether it is well, what it sees, what it has counted."""
