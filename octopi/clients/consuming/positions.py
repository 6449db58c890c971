"""The positions of a consumer of several topics, and their form as text::

    positions = position *( " " position ) / "v1:"

See `octopi.position` for that of one topic.  ``v1:`` stands for no position.
"""

from __future__ import annotations

from typing import Final

from octopi.errors import InvalidOptionError
from octopi.position import Position

_NONE: Final = "v1:"


class Positions(dict[str, Position]):
    """Topic -> the position there.  ``str`` of it can be stored; both are a start for
    `octopi.Client.consumer`.  A topic that isn't named is read from its beginning."""

    def __str__(self) -> str:
        return " ".join(str(one) for one in self.values()) or _NONE

    @classmethod
    def parse(cls, text: str) -> Positions:
        """The inverse of ``str(positions)``.

        Raises:
          InvalidOptionError: if *text* is not that of positions, or names a topic twice.
        """
        found = cls()
        for one in [] if text.strip() == _NONE else text.split():
            position = Position.parse(one)
            if position.topic in found:
                raise InvalidOptionError(f"the positions name topic {position.topic} twice")
            found[position.topic] = position
        if not found and text.strip() != _NONE:
            raise InvalidOptionError("no position; one looks like 'v1:orders@5f0c2a...:0=1234'")
        return found
