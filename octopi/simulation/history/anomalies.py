"""The guarantees of a cluster to its clients, as rules, and violations of them.

The rules are those that Jepsen checks for such logs (its ``jepsen.tests.kafka`` workload), and
others that offsets make possible here: a record's offset is the end of the record before it, so a
reader can prove that it missed nothing.
"""

from __future__ import annotations

from enum import Enum

import attrs

from octopi.simulation.history.events import History, LogName


class Rule(Enum):
    """The rule that an anomaly breaks.  The text says what holds if the rule is kept."""

    LOST_WRITE = "what was acknowledged stays in its log"
    ABORTED_READ = "a message that is surely not stored is nowhere"
    DIRTY_READ = "only what is committed is handed out, and it stays in its log"
    PHANTOM = "what is in a log was sent by a producer"
    CORRUPT = "a message arrives as it was sent: value, key and headers"
    WRONG_LOG = "a message is in the log that it was sent to"
    INCONSISTENT_OFFSET = (
        "an offset has one message and a message one offset, whichever broker is asked"
    )
    DUPLICATE = "a message that was sent once is in its log once"
    NOT_DENSE = "a record begins where the one before it ends, and has the size of its message"
    NONMONOTONIC_SEND = "messages that a producer sent one after another lie in that order"
    REAL_TIME_ORDER = "what was sent after another message was acknowledged lies behind that"
    EPOCH_WENT_BACK = "epochs in the receipts of a log never go down from one offset to the next"
    POLL_SKIP = "a consumer is handed all that lies between two messages"
    NONMONOTONIC_POLL = "a consumer isn't handed again what it had, nor what lies before that"
    POSITION_WENT_BACK = "the stored position of a consumer goes back by a seek only"
    POSITION_AHEAD = "a stored position isn't beyond what the consumer was handed"
    SILENT_FORK = "a consumer that read what is lost is told before it reads what came instead"
    UNSEEN = "a consumer that had the time has been handed everything"
    STALE_TAIL = "a log's end is behind all that was acknowledged before the end was asked for"


@attrs.frozen
class Anomaly:
    """One violation of one rule."""

    rule: Rule
    log: LogName
    text: str
    """A description of what was observed."""
    values: tuple[bytes, ...]
    """The messages concerned."""
    events: tuple[int, ...]
    """The events in conflict: their positions in the history, ascending."""

    def __str__(self) -> str:
        return f"{self.rule.name} in {self.log}: {self.text}; but {self.rule.value}"

    def explain(self, history: History) -> str:
        """The anomaly, then the events in conflict (marked ``>``) among all events about the same
        messages, one line each: number, seconds, and what happened."""
        lines = [str(self)]
        for number, event in enumerate(history.events):
            if number in self.events or getattr(event, "value", None) in self.values:
                mark = ">" if number in self.events else " "
                lines.append(f"{mark} {number:6} {event.at:12.6f} s  {event}")
        return "\n".join(lines)
