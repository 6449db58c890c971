"""Memory that is shared fairly by subject, with a loan for what is larger than a share.

A subject is the holder of a token; where tokens are not required, each connection is a subject.
A subject may have several accounts.

The rule of a `Pool` is that of dynamic thresholds (Choudhury and Hahne, "Dynamic queue length
thresholds in a shared-memory ATM switch", 1996): an account may take more as long as it then holds
at most what is still free, less what its subject holds.  So a single account takes at most a third,
a single subject at most half, each share shrinks while others use theirs, and something always
stays free for a subject that comes later.  For what can't be divided, such as one large record,
the rule counts what is free before it is taken.  What an account holds up to the pool's allowance
is not counted against its share, so small messages always pass.

A message that doesn't fit waits.  When something becomes free, the subject that holds and wants
least goes first.  A message larger than its share would wait for ever under load, so a pool for
messages has one loan beside its shares, of the size of the largest message; waiting subjects get
the loan in turn, in the order in which they began to wait.

All of it is synchronous and knows no clock; `octopi.transport.outbox` and
`octopi.transport.framed_link` do the waiting.  docs/decisions/0037-one-memory-budget.md has the
reasons.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush, nlargest
from typing import Final

UNFINISHED: Final = "unfinished"
"""Parts of incomplete messages that were received, and messages that were not handled yet.  The
loan is for this kind."""

NEVER: Final = 1 << 62
"""More bytes than can ever be free."""

_STALE_ENTRIES_MIN: Final = 64
_LOAN_TRIES: Final = 8
"""How many waiting subjects are tried, at most, for one whose message fits the loan; nearly every
message does."""


class Subject:
    """Bytes that one subject holds of a pool, over all its accounts; dropped when it holds none."""

    __slots__ = ("held_bytes", "name", "version", "waiting")

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.held_bytes = 0
        """What its accounts hold beyond their allowances, without the account with the loan."""
        self.waiting: deque[Waiter] = deque()
        self.version = 0
        """Of its current entry in `Pool._by_need`; entries with an older version are stale."""


class Waiter:
    """An account that waits until it may hold more."""

    __slots__ = ("_account", "_wake", "is_granted", "kind", "size_bytes")

    def __init__(
        self, account: MemoryAccount, kind: str, size_bytes: int, wake: Callable[[], None]
    ) -> None:
        self._account = account
        self._wake = wake
        self.kind: Final = kind
        self.size_bytes: Final = size_bytes
        self.is_granted = False
        """Whether *size_bytes* were charged to the account."""

    @property
    def account(self) -> MemoryAccount:
        """The account that waits."""
        return self._account

    def end(self, *, granted: bool) -> None:
        """Stop waiting, and wake the task that waits."""
        self.is_granted = granted
        self._account.ended(self)
        self._wake()

    def withdraw(self) -> None:
        """Stop waiting; if *size_bytes* were granted already, give them back."""
        if self.is_granted:
            self._account.release(self.kind, self.size_bytes)
        else:
            self._account.ended(self)
            self._account.pool.remove(self)


class Pool:
    """One part of a node's memory.

    Invariants: `used_bytes` is the sum of what the accounts hold beyond their allowances, without
    the account that has the loan.  Nothing is granted that brings it above `total_bytes`; only
    `MemoryAccount.charge` can, which does not ask.
    """

    def __init__(self, total_bytes: int, *, allowance_bytes: int, loan_bytes: int = 0) -> None:
        """*total_bytes*: what accounts share.  *allowance_bytes*: what each account may hold beside
        its share.  *loan_bytes*: what one account at a time may hold beside both."""
        self.total_bytes: Final = total_bytes
        self.allowance_bytes: Final = allowance_bytes
        self.loan_bytes: Final = loan_bytes
        self.used_bytes = 0
        self.ample_bytes = total_bytes // 3
        """Any account may take up to this without asking."""
        self.borrower: MemoryAccount | None = None
        """The account that has the loan."""
        self.held: dict[str, int] = {}
        """Everything that accounts hold, allowances and loan included, by kind."""
        self._subjects: dict[str, Subject] = {}
        """The subjects that hold something beyond their allowances, or wait."""
        self._waiting: dict[Subject, None] = {}
        """The subjects that wait, in the order in which they get the loan."""
        self._by_need: list[tuple[int, int, Subject, int]] = []
        """A heap of (bytes that have to be free for the subject, number, subject, version); an
        entry is stale if the subject has a newer version."""
        self._entry_count = 0
        self._granting = False

    @property
    def held_bytes(self) -> int:
        """Everything that accounts hold, in bytes."""
        return sum(self.held.values())

    @property
    def waiting_count(self) -> int:
        """Subjects that wait."""
        return len(self._waiting)

    def largest(self, count: int) -> list[tuple[str, int]]:
        """The *count* subjects that hold most beyond their allowances, with how many bytes."""
        held = ((one.name, one.held_bytes) for one in self._subjects.values() if one.held_bytes)
        return nlargest(count, held, key=lambda pair: pair[1])

    # --- for accounts ----------------------------------------------------------------

    def subject(self, name: str) -> Subject:
        """The subject of that name."""
        subject = self._subjects.get(name)
        if subject is None:
            subject = self._subjects[name] = Subject(name)
        return subject

    def changed(self, subject: Subject, difference_bytes: int) -> None:
        """*subject* holds *difference_bytes* more; grant what has become possible."""
        subject.held_bytes += difference_bytes
        self.used_bytes += difference_bytes
        # The same for every account, also for one that holds all that is used.
        is_lent = self.borrower is not None
        self.ample_bytes = 0 if is_lent else self.total_bytes // 3 - self.used_bytes
        self.look_at(subject)

    def look_at(self, subject: Subject) -> None:
        """What *subject* holds or waits for, or the loan, has changed: grant what has become
        possible."""
        if subject.waiting:
            self._rank(subject)
        elif not subject.held_bytes:
            self._subjects.pop(subject.name, None)
        if self._waiting:
            self._grant()

    def add(self, waiter: Waiter) -> None:
        """Have *waiter* wait; it may be granted at once."""
        subject = self.subject(waiter.account.name)
        subject.waiting.append(waiter)
        self._waiting.setdefault(subject)
        self.look_at(subject)

    def settled(self, account: MemoryAccount) -> None:
        """*account* gives the loan back; what it still holds counts against its share again."""
        subject = self.subject(account.name)
        self.borrower = None
        if subject in self._waiting:  # other accounts of it wait: the next subject goes first
            self._waiting[subject] = self._waiting.pop(subject)
        self.changed(subject, account.beyond_allowance())

    def remove(self, waiter: Waiter) -> None:
        """Have *waiter* stop waiting; harmless if it doesn't wait."""
        subject = self._subjects.get(waiter.account.name)
        if subject is not None and waiter in subject.waiting:
            subject.waiting.remove(waiter)
            self._forget_idle(subject)
            self.look_at(subject)

    # --- granting --------------------------------------------------------------------

    def _rank(self, subject: Subject) -> None:
        """Put *subject* into `_by_need` according to what it needs now."""
        subject.version += 1
        self._entry_count += 1
        need = self._need(subject)
        heappush(self._by_need, (need, self._entry_count, subject, subject.version))
        if len(self._by_need) > 2 * len(self._waiting) + _STALE_ENTRIES_MIN:
            self._by_need = [one for one in self._by_need if self._is_current(one)]
            heapify(self._by_need)

    def _need(self, subject: Subject) -> int:
        """How many bytes have to be free before the first waiter of *subject* is granted."""
        waiter = subject.waiting[0]
        beyond = waiter.account.beyond_allowance(waiter.size_bytes)
        if not beyond:
            return 0
        if waiter.account is not self.borrower:
            return beyond + subject.held_bytes
        # With the loan, the account may receive the rest of its message, but nothing else.
        fits = waiter.kind == UNFINISHED and beyond <= self.loan_bytes
        return 0 if fits else NEVER

    def _is_current(self, entry: tuple[int, int, Subject, int]) -> bool:
        return entry[3] == entry[2].version and bool(entry[2].waiting)

    def _grant(self) -> None:
        """Grant what fits, and the loan if it is free."""
        if self._granting:
            return  # a call further up the stack does it
        self._granting = True
        try:
            while (waiter := self._next()) is not None:
                subject = self.subject(waiter.account.name)
                subject.waiting.popleft()
                self._forget_idle(subject)
                waiter.account.charge(waiter.kind, waiter.size_bytes)
                if subject.waiting:
                    self._rank(subject)
                waiter.end(granted=True)
        finally:
            self._granting = False

    def _next(self) -> Waiter | None:
        """The next waiter to be granted.  If it is granted only with the loan, lend it that."""
        while self._by_need and not self._is_current(self._by_need[0]):
            heappop(self._by_need)
        if self._by_need and self._by_need[0][0] <= self.total_bytes - self.used_bytes:
            return self._by_need[0][2].waiting[0]
        if self.loan_bytes and self.borrower is None:
            for subject in list(self._waiting)[:_LOAN_TRIES]:
                self._waiting[subject] = self._waiting.pop(subject)  # it is the last one next time
                waiter = subject.waiting[0]
                if waiter.account.beyond_allowance(waiter.size_bytes) <= self.loan_bytes:
                    waiter.account.borrow()
                    return waiter
        return None

    def _forget_idle(self, subject: Subject) -> None:
        subject.version += 1
        if not subject.waiting:
            self._waiting.pop(subject, None)


class MemoryAccount:
    """What one connection holds of a pool."""

    __slots__ = ("_held", "_is_closed", "_waiters", "held_bytes", "name", "pool")

    def __init__(self, pool: Pool, name: str) -> None:
        """*name*: the name of its subject."""
        self.pool: Final = pool
        self.name: Final = name
        self.held_bytes = 0
        """What it holds, of all kinds together."""
        self._held: dict[str, int] | None = None
        """What it holds by kind; None until it first holds something, as most connections are
        idle."""
        self._waiters: tuple[Waiter, ...] = ()
        self._is_closed = False

    @property
    def has_loan(self) -> bool:
        """Whether this account has the loan of its pool."""
        return self.pool.borrower is self

    def held(self, kind: str) -> int:
        """What it holds of *kind*, in bytes."""
        return 0 if self._held is None else self._held.get(kind, 0)

    def beyond_allowance(self, more_bytes: int = 0) -> int:
        """What it holds beyond its allowance, or would with *more_bytes*."""
        return max(0, self.held_bytes + more_bytes - self.pool.allowance_bytes)

    def room(self, wanted_bytes: int, least_bytes: int = 1) -> int:
        """How much of *wanted_bytes* it may take now; 0 if that is less than *least_bytes*."""
        pool = self.pool
        if wanted_bytes <= pool.ample_bytes or self._is_closed:
            return wanted_bytes
        beyond = self.held_bytes - pool.allowance_bytes
        if pool.borrower is self:
            most_bytes = least_most_bytes = pool.loan_bytes - beyond
        else:
            free_bytes = pool.total_bytes - pool.used_bytes
            if pool.used_bytes:
                subject = pool._subjects.get(self.name)
                if subject is not None:
                    free_bytes -= subject.held_bytes
            least_most_bytes = max(0, free_bytes) - beyond
            # Each byte taken is one less that is free, one more that the subject holds, and one
            # more that the account holds: hence the third.
            spare_bytes = -beyond if beyond < 0 else 0
            share_bytes = (free_bytes - max(0, beyond)) // 3
            most_bytes = spare_bytes + max(0, share_bytes)
        if most_bytes >= wanted_bytes:
            return wanted_bytes
        if most_bytes >= least_bytes:
            return most_bytes
        return least_bytes if least_most_bytes >= least_bytes else 0

    @property
    def is_over(self) -> bool:
        """Whether it holds more than its present share; never true within the allowance."""
        if self.held_bytes <= self.pool.allowance_bytes or self._is_closed:
            return False
        return self.has_loan or not self.room(1)

    def charge(self, kind: str, size_bytes: int) -> None:
        """It holds *size_bytes* more of *kind*, whether or not they fit."""
        self._change(kind, size_bytes)

    def release(self, kind: str, size_bytes: int) -> None:
        """It holds *size_bytes* less of *kind*."""
        self._change(kind, -size_bytes)

    def wait(self, kind: str, size_bytes: int, wake: Callable[[], None]) -> Waiter:
        """Wait for *size_bytes* of *kind*.  *wake* is called once, when they have been charged or
        the account has been closed; possibly before this returns."""
        waiter = Waiter(self, kind, size_bytes, wake)
        if self._is_closed:
            waiter.end(granted=False)
        else:
            self._waiters += (waiter,)
            self.pool.add(waiter)
        return waiter

    def ended(self, waiter: Waiter) -> None:
        """*waiter* doesn't wait any more."""
        self._waiters = tuple(one for one in self._waiters if one is not waiter)

    def borrow(self) -> None:
        """Take the loan: what is held counts against the loan, and not against the share."""
        self.pool.borrower = self
        self.pool.changed(self.pool.subject(self.name), -self.beyond_allowance())

    def settle(self) -> None:
        """Give the loan back, if this account has it; what is still held counts against the share
        again."""
        if self.pool.borrower is self:
            self.pool.settled(self)

    def close(self) -> None:
        """Give everything back, and hold nothing from now on.  Safe to call twice."""
        if self._is_closed:
            return
        for waiter in self._waiters:
            self.pool.remove(waiter)
            waiter.end(granted=False)
        for kind, size_bytes in (self._held or {}).items():
            self.release(kind, size_bytes)
        self.settle()
        self._is_closed = True

    def _change(self, kind: str, difference_bytes: int) -> None:
        if self._is_closed or not difference_bytes:
            return
        pool, before = self.pool, self.beyond_allowance()
        if self._held is None:
            self._held = {}
        self.held_bytes += difference_bytes
        self._held[kind] = self._held.get(kind, 0) + difference_bytes
        pool.held[kind] = pool.held.get(kind, 0) + difference_bytes
        after = self.beyond_allowance()
        if pool.borrower is self:
            if not after:
                self.settle()
            elif self._waiters:
                pool.look_at(pool.subject(self.name))
        elif after != before:
            pool.changed(pool.subject(self.name), after - before)
