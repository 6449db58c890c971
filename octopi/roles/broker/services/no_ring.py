"""Refuses questions about a ring of brokers: a cluster with a register has none."""

from __future__ import annotations

from typing import NoReturn

from octopi.errors import RefusedError, Status
from octopi.roles.broker.services.context import ClientContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class NoRingService(Service):
    """Tells whoever asks for the ring which commands show this cluster."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__(
            {m.DescribeRing: self._refuse, m.Locate: self._refuse, m.OrderLeave: self._refuse}
        )

    def _refuse(self, message: m.DescribeRing | m.Locate | m.OrderLeave) -> NoReturn:
        raise RefusedError(
            "this cluster has a register, and its brokers form no ring; `octopi-node status` shows "
            "its brokers, and `octopi-node topics describe` where a topic is",
            Status.WRONG_ENDPOINT,
        )
