"""Octopi compared with its peers, measured in the same minutes on the same machine.

`workloads.toml` lists the workloads, `systems` starts each system and uses it with its best Python
client, `runner` runs them in turn, and `report` prints the results.  Only ratios within one run
mean anything, because machines differ and are shared.
"""
