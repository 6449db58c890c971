"""Strategies for Hypothesis: faults and messages that it draws, makes smaller and remembers.

::

    @given(faults=strategies.fault_plans(hosts=["account"], kinds=["kill"]))
    @settings(deadline=None)
    @octopi.testing.simulated()
    async def test_every_deposit_counts(
        cluster: octopi.testing.Cluster, faults: list[PlannedFault]
    ) -> None:
        ...
        with cluster.planned_faults(faults): ...

This module needs Hypothesis, which Octopi doesn't install.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import attrs
import trio

from octopi.clients.producing.producer import Producer
from octopi.clients.producing.receipts import Receipt
from octopi.simulation.faults.actions import (
    Action,
    Cut,
    DriftClock,
    FillDisk,
    JumpClock,
    Kill,
    LosePower,
    Pause,
    Slow,
    Stop,
)
from octopi.testing.errors import MisuseError
from octopi.testing.fault_draws import ALL_KINDS, KINDS
from octopi.testing.planned_faults import PlannedFault
from octopi.testing.triggers import step_text
from octopi.tracing.step import Step

try:
    from hypothesis import strategies as st
except ImportError:  # pragma: no cover
    raise ImportError(
        "octopi.testing.strategies needs Hypothesis: install the package hypothesis"
    ) from None

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
"""The brokers of a cluster with the default options."""
_LENGTH_MAX: Final = 30
"""The longest fault, in tenths of a second."""
_OCCURRENCE_MAX: Final = 5
_LATENCIES_S: Final = (0.1, 0.01, 0.5)
_SKEWS_S: Final = (1.0, -1.0, 60.0, -60.0, 3600.0, -3600.0)
_RATES: Final = (1.1, 0.9, 2.0)


def fault_plans(
    hosts: Sequence[str] = BROKERS,
    kinds: Sequence[str] = KINDS,
    *,
    steps: Collection[type[Step] | str] = (),
    within_s: float = 10.0,
    faults_max: int = 5,
) -> st.SearchStrategy[list[PlannedFault]]:
    """Faults for `Cluster.planned_faults`, at most *faults_max*.

    Each strikes one of *hosts*, which may be hosts of programs, with one of the *kinds* of
    `octopi.testing.ALL_KINDS`: at one of the *steps* (see `Cluster.at`), or within *within_s* s
    of virtual time.  They get simpler towards no faults, the host and the kind that are named
    first, and the beginning.

    Raises:
      MisuseError: if there is no such kind or step, or no host or kind is named.
    """
    for kind in kinds:
        if kind not in ALL_KINDS:
            raise MisuseError(f"there is no fault {kind!r}; there are {', '.join(ALL_KINDS)}")
    if not hosts or not kinds:
        raise MisuseError("name at least one host and one kind of fault")
    texts = [step_text(step) for step in steps]
    moments = st.integers(0, round(within_s * 100)).map(
        lambda hundredths: ("", 1, hundredths / 100)
    )
    if texts:
        at_steps = st.tuples(st.sampled_from(texts), st.integers(1, _OCCURRENCE_MAX), st.just(0.0))
        moments = st.one_of(at_steps, moments)

    actions = st.one_of([_actions(kind, hosts) for kind in kinds])

    @st.composite
    def planned(draw: st.DrawFn) -> PlannedFault:
        return PlannedFault(draw(actions), draw(st.sampled_from(list(hosts))), *draw(moments))

    return st.lists(planned(), max_size=faults_max)


def _actions(kind: str, hosts: Sequence[str]) -> st.SearchStrategy[Action]:
    lengths = st.integers(1, _LENGTH_MAX).map(lambda tenths: tenths / 10)
    match kind:
        case "kill":
            return st.builds(Kill, lengths)
        case "lose power":
            return st.builds(LosePower, lengths)
        case "stop":
            return st.builds(Stop, lengths)
        case "pause":
            return st.builds(Pause, lengths)
        case "isolate":
            return st.builds(Cut, st.just("others"), lengths)
        case "slow":
            return st.builds(Slow, st.just("others"), lengths, st.sampled_from(_LATENCIES_S))
        case "skew":
            return st.builds(JumpClock, st.sampled_from(_SKEWS_S))
        case "drift":
            return st.builds(DriftClock, st.sampled_from(_RATES), lengths)
        case "fill disk":
            return st.builds(FillDisk, lengths)
    others = st.sampled_from(list(dict.fromkeys([*BROKERS, *hosts])))
    return st.builds(Cut, others, lengths, st.sampled_from(("both", "out")))


@attrs.frozen
class TimedMessage:
    """A message, and how long to wait before it is sent."""

    value: bytes
    key: bytes | None = None
    wait_s: float = 0.0


@attrs.frozen
class DrawnWorkload:
    """Messages that are sent one after the other."""

    messages: tuple[TimedMessage, ...]

    async def send(self, producer: Producer, topic: str) -> list[Receipt]:
        """Send all of them, each when the one before is acknowledged; return their receipts.

        Raises:
          OctopiError: what `Producer.send` raises.
        """
        receipts: list[Receipt] = []
        for message in self.messages:
            await trio.sleep(message.wait_s)
            receipts.append(await producer.send(topic, message.value, key=message.key))
        return receipts


def workloads(
    values: st.SearchStrategy[bytes] | None = None,
    *,
    keys: Sequence[bytes | None] = (None,),
    wait_s_max: float = 1.0,
    messages_max: int = 20,
) -> st.SearchStrategy[DrawnWorkload]:
    """Messages to send, at least one and at most *messages_max*.

    Their values are drawn from *values* (by default up to eight bytes), their keys from *keys*, and
    before each of them there is a wait of at most *wait_s_max* seconds.
    """
    message = st.builds(
        TimedMessage,
        st.binary(min_size=1, max_size=8) if values is None else values,
        st.sampled_from(list(keys)),
        st.integers(0, round(wait_s_max * 100)).map(lambda hundredths: hundredths / 100),
    )
    messages = st.lists(message, min_size=1, max_size=messages_max)
    return messages.map(lambda drawn: DrawnWorkload(tuple(drawn)))
