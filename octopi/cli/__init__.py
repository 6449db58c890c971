"""The command line: the only part that knows files of settings, terminals and signals."""
