"""What tests and benchmarks share: real nodes as processes, and the machines that they run on."""
