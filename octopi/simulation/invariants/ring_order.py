"""Whether the brokers of a simulated cluster without a register are one ring."""

from __future__ import annotations

from typing import Final

from octopi.ring.chord import Chord
from octopi.simulation.cluster import SimulatedCluster

_LISTED_COUNT_MAX: Final = 4
"""How many successors a broker knows, at most."""


def fault_of_ring(cluster: SimulatedCluster, away: str = "") -> str:
    """How the brokers that run, but that on the host *away*, differ from one ring in the order of
    their points, of which each knows the neighbours; empty if they don't."""
    chords: dict[str, Chord] = {}
    for node in cluster.brokers:
        if node.name == away or not node.host.is_up:
            continue
        chord = node.ring.member.chord if node.ring is not None and node.ring.member else None
        if chord is None or not chord.is_member:
            return f"{node.name} is no member"
        chords[node.name] = chord
    order = sorted(chords, key=lambda one: chords[one].me.place)
    for at, name in enumerate(order):
        count, chord = len(order), chords[name]
        listed = min(count - 1, _LISTED_COUNT_MAX)
        behind = [chords[order[(at + one) % count]].me for one in range(1, listed + 1)]
        found = chord.neighbours
        if list(found.successors) != behind:
            return f"{name} knows the successors {found.successors}, and they are {behind}"
        if count > 1 and found.predecessor != chords[order[at - 1]].me:
            return f"{name} knows the predecessor {found.predecessor}, and it is {order[at - 1]}"
    return ""
