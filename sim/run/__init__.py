"""One run of a plan: its clients, its operator, and the verdict."""
