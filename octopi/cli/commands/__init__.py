"""The commands of `octopi-node`, one module each; the docstring of a command is its help."""
