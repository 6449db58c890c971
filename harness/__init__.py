"""Real nodes as processes, and the machines that they run on, for tests and benchmarks; and the
site that is made of the documents."""
