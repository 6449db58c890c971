"""How brokers introduce themselves, and how one that joins a cluster gets its id: a member gives
it, by a change of the record."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from octopi.environment import Environment
from octopi.errors import NotReadyError
from octopi.identifiers import BrokerId, DirectoryId, Incarnation
from octopi.limits import AGREEMENT_TIMEOUT_S, RING_ANSWER_S, STABILISE_S
from octopi.logger import get_logger
from octopi.ring.chord import Chord
from octopi.ring.cluster_record import ClusterRecord
from octopi.roles.broker.ring.cluster_keeper import ClusterKeeper
from octopi.roles.broker.ring.peers import RingPeers
from octopi.transport.pending_requests import Numbered
from octopi.wire.agreement import AcceptorId
from octopi.wire.ring import Admit, Admitted, Introduced

_log = get_logger(__name__)


async def ask_for_id(
    environment: Environment, peers: RingPeers, address: str, addresses: Sequence[str]
) -> Admitted:
    """Ask the brokers at *addresses*, in a random order and again every second, until a member of
    the ring gives the broker at *address* an id."""
    clock, draw = environment.clock, environment.randomness.random
    while True:
        for asked in sorted(addresses, key=lambda one: draw()):
            answer = await _answer(environment, peers, asked, Admit(1, address))
            if isinstance(answer, Admitted):
                _log.info("admitted", broker=answer.broker, by=asked)
                return answer
        await clock.sleep_until(clock.now() + STABILISE_S)


async def _answer(
    environment: Environment, peers: RingPeers, address: str, question: Numbered
) -> object:
    """The answer of the broker at *address*; None: it does not come in time."""
    answers: list[object] = []
    answered = trio.Event()

    def take(answer: object) -> None:
        answers.append(answer)
        answered.set()

    peers.ask(address, question, take)
    with environment.clock.timeout(AGREEMENT_TIMEOUT_S + RING_ANSWER_S):
        await answered.wait()
    return answers[0] if answers else None


async def give_id(chord: Chord | None, keeper: ClusterKeeper, message: Admit) -> Admitted:
    """Give a new broker an id.

    Raises:
      NotReadyError: if this broker is no member, or no majority answers.
    """
    if chord is None or not chord.is_member:
        raise NotReadyError("this broker is no member of the ring yet")
    record = await keeper.change(ClusterRecord.with_next_id)
    assert keeper.chosen is not None
    taken = (chord.me.point, *(one.node.point for one in chord.book))
    broker = BrokerId(record.ids)
    _log.info("a broker gets an id", broker=broker, address=message.address)
    return Admitted(message.request, broker, taken, keeper.chosen)


def introduced(request: int, address: str, host: str, acceptor: AcceptorId | None) -> Introduced:
    """The answer of the broker at *address*; *acceptor*: None: it has no id yet.  The caller fills
    in what it knows of the cluster."""
    return Introduced(
        request,
        address,
        BrokerId(0) if acceptor is None else acceptor.broker,
        DirectoryId("") if acceptor is None else acceptor.directory,
        host,
        Incarnation(1),
        (),
        None,
    )
