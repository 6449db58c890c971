"""Lives of relays.  A relay that starts again, or gives up what it holds, has forgotten what it
promised; quorums notice that by its life."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from octopi.identifiers import BrokerId, Incarnation


class RelayLife(NamedTuple):
    """One life of a relay: in it, it forgets nothing."""

    incarnation: Incarnation
    """The broker's."""
    emptied: int = 0
    """How often it gave up what it held in this incarnation."""


NO_LIFE = RelayLife(Incarnation(0))
"""Below all lives."""

Lives = Mapping[BrokerId, RelayLife]
"""The newest lives of some relays that somebody knows."""


class Testimony(NamedTuple):
    """Who voted or answered, in which life, and which lives of others it knew."""

    relay: BrokerId
    life: RelayLife
    lives: Lives


def stale_in(testimonies: Iterable[Testimony]) -> set[BrokerId]:
    """Those of whom another one knows a newer life.  If there are any, these testimonies don't
    make a quorum: what the former life promised may be forgotten.

    The rule is that of crash-consistent quorums (E. Michael et al., DISC 2017).
    """
    known = list(testimonies)
    newest = newest_lives(one.lives for one in known)
    return {one.relay for one in known if newest.get(one.relay, NO_LIFE) > one.life}


def newest_lives(several: Iterable[Lives]) -> dict[BrokerId, RelayLife]:
    """The newest life of each relay that is in one of *several*."""
    newest: dict[BrokerId, RelayLife] = {}
    for lives in several:
        for relay, life in lives.items():
            newest[relay] = max(life, newest.get(relay, NO_LIFE))
    return newest
