"""Arguments of `consume` that name several topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octopi.cli.failures import CommandError, ExitCode
from octopi.cli.start_option import parse_start
from octopi.errors import InvalidOptionError

if TYPE_CHECKING:
    from octopi.clients.consuming.positions import Positions
    from octopi.clients.consuming.start_position import Start


def is_several(topics: Sequence[str]) -> bool:
    """Whether *topics* needs a consumer of several topics, as for a pattern."""
    return len(topics) > 1 or "*" in topics[0]


def parse_starts(text: str) -> Start | Positions:
    """The start that *text* denotes for several topics: positions, with spaces between them, or one
    that `parse_start` takes.

    Raises:
      CommandError: if *text* is not a start position.
    """
    if not text.startswith("v1:"):
        return parse_start(text)
    from octopi.clients.consuming.positions import Positions

    try:
        return Positions.parse(text)
    except InvalidOptionError as error:
        raise CommandError(str(error), ExitCode.USAGE) from None
