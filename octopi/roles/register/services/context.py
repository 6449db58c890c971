"""What the services of one client of a register share."""

from __future__ import annotations

from collections.abc import Callable

import trio

from octopi.roles.decider_context import DeciderClient, DeciderContext
from octopi.roles.register.node import RegisterNode
from octopi.security.quotas import Creator


class RegisterContext(DeciderContext):
    """One client of a register, as its services see it."""

    def __init__(
        self,
        node: RegisterNode,
        connection: DeciderClient,
        tasks: trio.Nursery,
        creator: Callable[[], Creator],
    ) -> None:
        """See `DeciderContext`."""
        super().__init__(connection, tasks, creator)
        self.node = node
