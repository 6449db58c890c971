"""Plans that drive real processes, what their clients note, and the checks of that.

What clients note is checked by code of its own, which shares nothing with the simulator.
"""
