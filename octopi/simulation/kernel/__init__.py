"""The world of a run: its time, its hosts, the order of its tasks, and the sandbox around them."""
