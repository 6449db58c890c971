"""The jobs of ``octopi-node pipeline``, as functions: one module for each."""
