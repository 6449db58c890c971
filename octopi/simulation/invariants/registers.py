"""Checks that several registers keep one journal, and that one of them decides at a time.

================== =====================================================================
rule               broken when
================== =====================================================================
two-active         two registers, or two processes of one, are elected in one term
vote-unheld        a register tells its vote, and has not that vote on its device
entries-unheld     a register acknowledges entries that are not on its device
journals-differ    two registers take different entries at an index for committed, begin
                   two journals, or fold one into something else
decision-undone    a register is active without an entry that another one told as decided
standby-decides    a register appends decisions that isn't the active one
================== =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from octopi.agreement.journal.stored import StoredState
from octopi.roles.register.group.running import folding
from octopi.simulation.cluster import DATA_DIRECTORY, WIPE, SimulatedCluster
from octopi.simulation.disk.group_bytes import RegisterBytes
from octopi.simulation.faults.actions import BreakDisk
from octopi.simulation.faults.injector import FAULT
from octopi.simulation.invariants.system import BreakRule, SystemInvariants
from octopi.simulation.kernel.world import Event, StepEvent
from octopi.storage.time_slices import at_once
from octopi.tracing import steps
from octopi.wire.registers import JournalEntry


class RegisterRules(SystemInvariants):
    """Compares the journals of several registers, and what each of them does as the active one."""

    promises: ClassVar[Mapping[str, str]] = {
        "two-active": "in each term at most one register is elected",
        "vote-unheld": "a register tells its vote only when that is on its device",
        "entries-unheld": "a register acknowledges entries only when they are on its device",
        "journals-differ": (
            "what one register knows as committed at an index of the journal, all that know it "
            "have there, folded or not"
        ),
        "decision-undone": (
            "what was told as decided is in the journal of each later active register"
        ),
        "standby-decides": "only the active register appends decisions",
    }

    def __init__(self, cluster: SimulatedCluster, break_rule: BreakRule) -> None:
        super().__init__(cluster, break_rule)
        self._bytes = {
            one.name: RegisterBytes(one.host.disk, DATA_DIRECTORY) for one in cluster.registers
        }
        self._elected: dict[int, Event] = {}
        """By term."""
        self._agreed: list[tuple[JournalEntry, Event]] = []
        """The committed entries, each with the event in which a register first knew of it."""
        self._told: tuple[int, Event] | None = None
        """The index before which everything was told as decided, and when the last of it was."""
        self._active: dict[tuple[str, int], bool] = {}
        """By host and process: whether it may decide."""
        self._lost: set[str] = set()
        """The hosts that have lost their disk since the journal began."""
        self._unsure: set[str] = set()
        """Hosts whose device may lack names of files, because a sync of a directory failed."""
        if len(cluster.registers) <= 1:
            return
        on = self.handlers.on
        on(self._check_vote, steps.G1Voted)
        on(self._check_elected, steps.G2Elected)
        on(self._check_active, steps.G3Active)
        on(self._check_stored, steps.G4Stored)
        on(self._check_committed, steps.G5Committed)
        on(self._note_deposed, steps.G6Deposed)
        on(self._check_folded, steps.G7Folded)
        on(self._check_appending, steps.R2Appending)
        on(self._note_told, steps.R3Flushed)
        self.handlers.on_word(self._note_wipe, WIPE)
        self.handlers.on_word(self._note_fault, FAULT)

    # --- terms -----------------------------------------------------------------------------

    def _check_vote(self, event: StepEvent[steps.G1Voted]) -> None:
        state, step = self._on_device(event.host), event.step
        voted = state.vote.address if state.vote is not None else "nobody"
        if state.term < step.term or (state.term == step.term and voted != step.candidate):
            text = f"{event.host} votes for {step.candidate} in term {step.term}; its device says "
            self.break_rule("vote-unheld", f"{text}{voted} in term {state.term}", event)

    def _check_elected(self, event: StepEvent[steps.G2Elected]) -> None:
        step = event.step
        begins_anew = step.end == 0 and bool(self._agreed)
        if begins_anew and self._lost.issuperset(self._bytes):
            # Nobody has the former journal any more.  The new one begins with the first term.
            self._agreed.clear()
            self._elected.clear()
            self._lost.clear()
            self._told = None
        elif begins_anew:
            text = (
                f"{event.host} begins a journal, and there is one with {len(self._agreed)} entries"
            )
            self.break_rule("journals-differ", text, event, self._agreed[-1][1])
        other = self._elected.setdefault(step.term, event)
        if (other.host, other.life) != (event.host, event.life):
            text = f"{event.host} is elected in term {step.term}, in which {other.host} was elected"
            self.break_rule("two-active", text, event, other)

    def _check_active(self, event: StepEvent[steps.G3Active]) -> None:
        self._active[event.host, event.life] = True
        if self._told is not None and event.step.end < self._told[0]:
            text = f"{event.host} is active with the entries before {event.step.end} committed; "
            text += f"those before {self._told[0]} were told as decided"
            self.break_rule("decision-undone", text, event, self._told[1])

    def _note_deposed(self, event: StepEvent[steps.G6Deposed]) -> None:
        self._active[event.host, event.life] = False

    def _check_appending(self, event: StepEvent[steps.R2Appending]) -> None:
        if not self._active.get((event.host, event.life), False):
            text = f"{event.host} appends decisions, and is not the active register"
            self.break_rule("standby-decides", text, event)

    def _note_told(self, event: StepEvent[steps.R3Flushed]) -> None:
        if self._told is None or event.step.log_end > self._told[0]:
            self._told = event.step.log_end, event

    def _note_wipe(self, event: Event) -> None:
        if event.host in self._bytes:
            self._lost.add(event.host)
            self._unsure.discard(event.host)

    def _note_fault(self, event: Event) -> None:
        action = event.facts["action"]
        if isinstance(action, BreakDisk) and action.may_lose_names:
            self._unsure.add(event.host)

    def _on_device(self, host: str) -> StoredState:
        """What *host* has on its device, or in its files, if those may be all it goes by."""
        one = self._bytes[host]
        return (one.cached() if host in self._unsure else one.durable()).state

    # --- entries ---------------------------------------------------------------------------

    def _check_stored(self, event: StepEvent[steps.G4Stored]) -> None:
        state, step = self._on_device(event.host), event.step
        if state.term == step.term and state.history.end < step.end:
            text = f"{event.host} acknowledges the entries before {step.end}; its device has those "
            self.break_rule("entries-unheld", f"{text}before {state.history.end}", event)

    def _check_committed(self, event: StepEvent[steps.G5Committed]) -> None:
        step = event.step
        first = step.end - len(step.entries)
        if first > len(self._agreed):
            text = f"{event.host} knows as committed what no register has committed: the entries "
            self.break_rule("journals-differ", f"{text}before {first}", event)
            return
        if step.snapshot:
            self._compare_folded(event, first, step.snapshot)
        for index, entry in enumerate(step.entries, first):
            if index == len(self._agreed):
                self._agreed.append((entry, event))
            elif self._agreed[index][0] != entry:
                text = f"{event.host} has at {index} as committed {entry}; "
                text += f"{self._agreed[index][1].host} had there {self._agreed[index][0]}"
                self.break_rule("journals-differ", text, event, self._agreed[index][1])
                return

    def _check_folded(self, event: StepEvent[steps.G7Folded]) -> None:
        self._compare_disk(event, event.host)

    def _compare_folded(self, event: Event, end: int, contents: Iterable[bytes]) -> None:
        """Compare *contents*, into which a register has folded the entries before *end*."""
        entries = [one for one, _ in self._agreed[:end]]
        expected = at_once(folding([one.content for one in entries if one.content]))
        if sorted(at_once(folding([*contents]))) != sorted(expected):
            text = f"{event.host} has folded the entries before {end} into something else"
            self.break_rule("journals-differ", text, event)

    def _compare_disk(self, event: Event, host: str) -> None:
        """Compare what *host* has on its device with what is committed."""
        history = self._on_device(host).history
        end = history.snapshot.end
        if end > len(self._agreed):
            text = f"{host} has folded entries before {end}, of which no register knows that they "
            self.break_rule("journals-differ", f"{text}are committed", event)
            return
        if end:
            self._compare_folded(event, end, history.snapshot.contents)
            agreed = [one for one, _ in self._agreed[:end]]
            voters = next(one.voters for one in reversed(agreed) if one.voters)
            if (history.snapshot.term, history.snapshot.voters) != (agreed[-1].term, voters):
                text = f"{host} has folded the entries before {end}, the last one of term "
                text += f"{agreed[-1].term}, into a snapshot of term {history.snapshot.term}"
                self.break_rule("journals-differ", text, event)

    def at_rest(self, event: Event) -> None:
        if len(self._bytes) == 1:
            return
        for host in self._bytes:
            self._compare_disk(event, host)
            history = self._on_device(host).history
            start, entries = history.snapshot.end, history.entries
            agreed = [entry for entry, _ in self._agreed[start : start + len(entries)]]
            if entries[: len(agreed)] != agreed:
                text = f"{host} has other entries behind {start} than those that are committed"
                self.break_rule("journals-differ", text, event)
