"""The command line: the only package that handles settings files, terminals and signals."""
