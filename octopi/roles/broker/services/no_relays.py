"""Refuses questions about topics in memory: a broker with logs has none."""

from __future__ import annotations

from typing import NoReturn

from octopi.errors import RefusedError, Status
from octopi.roles.broker.services.context import ClientContext
from octopi.transport.services import Service
from octopi.wire import messages as m


class NoRelaysService(Service):
    """Tells whoever asks for relays which commands show this cluster."""

    def __init__(self, context: ClientContext) -> None:
        super().__init__({m.DescribeRelays: self._refuse, m.DescribeRelayStream: self._refuse})

    def _refuse(self, message: m.DescribeRelays | m.DescribeRelayStream) -> NoReturn:
        raise RefusedError(
            "this broker keeps topics in logs, none in memory; `octopi-node status` shows its "
            "cluster, and `octopi-node topics describe` where a topic is",
            Status.WRONG_ENDPOINT,
        )
