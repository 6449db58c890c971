"""Recordings for tests: made by hand, and of real little runs."""

from __future__ import annotations

from functools import cache
from typing import Any

from octopi.simulation.kernel.world import Event, StepEvent
from octopi.simulation.report.recorder import Recorder
from octopi.simulation.report.recording import Broken, Came, Happening, Note, Recording, Sent
from octopi.tracing import steps
from sim.run.plan import Plan, WorkloadOptions
from sim.run.simulation import simulate
from tests.simulation.told import told

HOSTS = (("register", "register"), ("broker-1", "broker"), ("broker-2", "broker"))
LOG: dict[str, Any] = {"topic": "orders", "topic_id": "0a", "partition": 0}


class Story:
    """Happenings, one behind the other; each takes a millisecond."""

    def __init__(self) -> None:
        self.happenings: list[Happening] = []
        self.event_count = 0
        self.pause_s = 0.0
        self.message_count = 0

    @property
    def now(self) -> float:
        return len(self.happenings) / 1000 + self.pause_s

    @property
    def moment(self) -> int:
        """The moment of what happened last."""
        return len(self.happenings) - 1

    def event(self, what: str, host: str = "", life: int = 1, /, **facts: Any) -> Event:  # noqa: ANN401
        step = next((one for one in steps.ALL if one.text == what), None)
        about = facts if step is None else told(step, **facts)
        cls = Event if step is None else StepEvent
        event = cls(self.event_count, self.now, host, life, what, about)
        self.event_count += 1
        self.happenings.append(event)
        return event

    def send(self, host: str, target: str, kind: str = "replicate", content: object = None) -> Sent:
        sent = Sent(self.message_count, self.now, host, 1, target, kind, "0a", 0, 99, content)
        self.message_count += 1
        self.happenings.append(sent)
        return sent

    def arrive(self, sent: Sent) -> Came:
        came = Came(sent.number, self.now, sent.target, 1)
        self.happenings.append(came)
        return came

    def recording(self, title: str = "a story", **more: Any) -> Recording:  # noqa: ANN401
        return Recording(title, tuple(self.happenings), HOSTS, **more)


def lost_write() -> Recording:
    """A broker commits, and another one that leads behind it has cut its log."""
    story = Story()
    for host, _ in HOSTS:
        story.event("boot", host)
    story.event(steps.E11Leading.text, "broker-1", partition=0, epoch=1, in_sync=[1, 2])
    story.event(steps.P2Appended.text, "broker-1", **LOG, epoch=1, offset=0, end=100)
    sent = story.send("broker-1", "broker-2")
    story.arrive(sent)
    story.event(
        steps.P3Replicated.text, "broker-2", **LOG, epoch=1, offset=0, end=100, records_epoch=1
    )
    committed = story.event(
        steps.P6Committed.text, "broker-1", **LOG, epoch=1, highwater=100, log_end=100
    )
    story.event("kill", "broker-1")
    story.event(
        steps.E13Truncated.text, "broker-2", **LOG, epoch=2, highwater=0, log_end=100, end=0
    )
    lost = story.send("broker-2", "broker-1")
    assert lost.number == 1
    story.pause_s = 1.0
    leads = story.event(steps.E11Leading.text, "broker-2", partition=0, epoch=2, in_sync=[2])
    broken = Broken(
        "incomplete-leader",
        "whoever leads has all committed records",
        "broker-2 leads, and of orders/0 it lacks what is committed from 0 to 100",
        (committed.number, leads.number),
        details="line one\nline two",
    )
    return story.recording(
        "seed 7",
        broken=broken,
        command="octopi-node sim replay 'oc1-abc%DEF'",
        options=("seed = 7", "brokers = 2"),
        faults=("Kill(restart_s=None) to here at 2 s",),
        digest="0123456789abcdef",
    )


def aborted_read() -> Recording:
    """What clients noted contradicts itself."""
    story = Story()
    for host, _ in HOSTS:
        story.event("boot", host)
    notes = (
        Note(0.0005, "alice is told that 'm1' is surely not stored", True),
        Note(9.0, "carol is handed 'm1'", True),
    )
    broken = Broken("ABORTED_READ", "what is not stored is nowhere", "'m1'", notes=notes)
    return story.recording(broken=broken)


PLAN = Plan(3, workload=WorkloadOptions(producers=2, records=40))


@cache
def real_run() -> Recording:
    """A run of a whole cluster, with a few thousand events."""
    recorder = Recorder()
    verdict = simulate(PLAN, [recorder.watch])
    return recorder.recording("a real run", digest=verdict.digest)
