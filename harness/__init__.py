"""Real nodes as processes, and the machines that they run on, for tests and benchmarks."""
