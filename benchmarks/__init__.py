"""Octopi side by side with its peers, measured in the same minutes on the same machine.

`workloads.toml` says what is measured, `systems` how each system is started and used with its
best Python client, `runner` takes turns, `report` prints.  Only ratios within one run mean
anything: machines differ, and are shared.
"""
