"""How a log is led and, later, followed: decisions only, no I/O."""
