"""How a broker that knows no cluster finds one, or forms one with the other founders.

Every second it introduces itself at the addresses by which it joins.  Whoever knows the cluster
tells it the record.  Founders that have all answered, and know none, agree on the first record
(`octopi.agreement.founding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf

from octopi.agreement.founding import FirstChosen, Founding, FoundingEffect, SendToFounder
from octopi.agreement.values import first_value
from octopi.environment import Environment
from octopi.errors import ConnectionLostError, RefusedError, Status
from octopi.identifiers import BrokerId, ClusterId, Incarnation
from octopi.limits import AGREEMENT_ATTEMPT_S, ID_CHARACTERS
from octopi.logger import get_logger
from octopi.ring.cluster_record import encode_cluster, formed
from octopi.ring.founders import founder_id, founder_list, founder_point, founders_fault, is_founder
from octopi.roles.broker.ring.cluster_keeper import CLUSTER
from octopi.roles.broker.ring.options import RingOptions
from octopi.wire.agreement import (
    AcceptorId,
    AcceptValue,
    AgreedValue,
    PrepareBallot,
    ToProposer,
    ValueChosen,
)
from octopi.wire.common import Failure
from octopi.wire.ring import Introduce, Introduced, RingNode

_log = get_logger(__name__)


class Forming:
    """Finds or forms the cluster, for one broker.  It does no I/O but by its callbacks."""

    def __init__(
        self,
        environment: Environment,
        options: RingOptions,
        address: str,
        send: Callable[[str, PrepareBallot | AcceptValue], None],
        learn: Callable[[ValueChosen], None],
    ) -> None:
        """*address*: this broker's.  *send* sends to the acceptor of the founder at an address.
        *learn* is told a value that is chosen."""
        self.founders: tuple[str, ...] = ()
        """All founders, if this broker is one."""
        if is_founder(address, options.join):
            self.founders = founder_list(options.join)
        self.others = tuple(
            one for one in founder_list(options.join) if one != founder_list([address])[0]
        )
        """The other addresses by which it joins."""
        self.waits_for = "no broker has answered yet"
        """Why no cluster is known."""
        self._environment = environment
        self._options = options
        self._address = founder_list([address])[0]
        self._send, self._learn = send, learn
        self._introduced: dict[str, Introduced] = {}
        self._founding: Founding | None = None
        self._incarnation = Incarnation(1)

    @property
    def wakes_at(self) -> float:
        """When `tick` has something to do."""
        return inf if self._founding is None else self._founding.wakes_at

    @property
    def own_id(self) -> BrokerId | None:
        """The id of this broker in the cluster that it forms; None: it is no founder."""
        return founder_id(self._address, self.founders) if self.founders else None

    def begin(self, incarnation: Incarnation) -> None:
        """This broker is *incarnation*, and its acceptor answers."""
        self._incarnation = incarnation
        self._found_if_complete()

    def refuse_other_list(self, message: Introduce) -> None:
        """Refuse a founder that was started with another list than this one.

        Raises:
          RefusedError: if it was.
        """
        if why := founders_fault(self.founders, message.address, message.founders):
            self._differ(why)
            raise RefusedError(
                founders_fault(message.founders, self._address, self.founders),
                Status.INVALID_OPTION,
            )

    def _differ(self, why: str) -> None:
        self.waits_for = why
        _log.sparing(self._environment.clock).error("founders differ", why=why)

    def introduced(self, address: str, answer: object) -> None:
        """The broker at *address* has answered, or nobody has."""
        match answer:
            case Introduced(founders=founders) if why := founders_fault(
                self.founders, address, founders
            ):
                self._differ(why)
            case Introduced(cluster=ValueChosen() as cluster):
                self._learn(cluster)
            case Introduced():
                self._introduced[address] = answer
                self.waits_for = "no broker that has answered knows a cluster"
                self._found_if_complete()
            case Failure(reason=reason):
                self.waits_for = f"{address} says: {reason}"
                _log.sparing(self._environment.clock).error("not introduced", why=self.waits_for)
            case ConnectionLostError():
                self._introduced.pop(address, None)
                self.waits_for = f"{address} is not reached: {answer}"

    def _found_if_complete(self) -> None:
        """Begin to agree with the others when all have answered."""
        known = {
            address
            for address, one in self._introduced.items()
            if one.founders and one.broker == founder_id(address, self.founders or [address])
        }
        if not self.founders or self._founding is not None or not known >= set(self.others):
            return
        mine = self.own_id
        assert mine is not None
        clock, randomness = self._environment.clock, self._environment.randomness
        self._founding = Founding(
            CLUSTER,
            self.founders,
            mine,
            self._incarnation,
            self._first,
            randomness.random,
            clock.now() + (mine - 1) * AGREEMENT_ATTEMPT_S,
        )
        _log.info("all founders are there", founders=", ".join(self.founders))

    def _first(self, acceptors: Mapping[str, AcceptorId]) -> AgreedValue:
        """The record of a new cluster of these founders."""
        nodes: list[RingNode] = []
        for address, one in sorted(acceptors.items()):
            met = self._introduced.get(address)
            host = self._options.host if met is None else met.host
            since = self._incarnation if met is None else met.incarnation
            point = founder_point(founder_id(address, self.founders), len(self.founders))
            nodes.append(RingNode(one.broker, one.directory, point, host, address, since))
        drawn = self._environment.randomness.token_bytes(ID_CHARACTERS // 2).hex()
        options = self._options
        record = formed(
            ClusterId(drawn), options.partition_count, options.replica_count, tuple(nodes)
        )
        return first_value(acceptors.values(), encode_cluster(record))

    def tick(self, now: float) -> None:
        """Time has passed."""
        if self._founding is not None:
            self._perform(self._founding.tick(now))
            if missing := self._founding.missing:
                self.waits_for = f"founders that have not promised yet: {', '.join(missing)}"

    def receive(self, address: str, message: ToProposer) -> None:
        """The acceptor of the founder at *address* answers."""
        if self._founding is not None:
            now = self._environment.clock.now()
            self._perform(self._founding.receive(founder_list([address])[0], message, now))

    def _perform(self, effects: list[FoundingEffect]) -> None:
        for effect in effects:
            match effect:
                case SendToFounder(address, message):
                    self._send(address, message)
                case FirstChosen(message):
                    _log.info("the cluster is formed")
                    self._learn(message)

    def end(self) -> None:
        """A cluster is known."""
        self._founding = None
        self._introduced.clear()
        self.waits_for = ""
