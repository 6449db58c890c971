"""The memory of a node is shared by subject: nobody takes all of it, and everybody who waits is
served."""

import attrs
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from octopi.limits import (
    CONNECTIONS_MAX,
    MEMORY_ALLOWANCE_BYTES,
    MEMORY_BUDGET_BYTES,
    MEMORY_LOAN_BYTES,
    RECORD_BYTES_MAX,
)
from octopi.transport.memory_budget import OUTBOX, MemoryBudget, Usage, unbounded_memory
from octopi.transport.memory_pool import UNFINISHED, MemoryAccount, Pool, Waiter

ALLOWANCE = 10
LOAN = 500


def pool(total_bytes: int = 1000) -> Pool:
    return Pool(total_bytes, allowance_bytes=ALLOWANCE, loan_bytes=LOAN)


def filled(shared: Pool, subject: str = "crowd") -> MemoryAccount:
    """An account that holds all there is to share, whatever its share."""
    account = MemoryAccount(shared, subject)
    account.charge(UNFINISHED, shared.total_bytes + ALLOWANCE)
    return account


@attrs.define
class Waiting:
    """Somebody who waits for room."""

    account: MemoryAccount
    waiter: Waiter | None = None
    woken_count: int = 0

    def wake(self) -> None:
        self.woken_count += 1


def waiting(account: MemoryAccount, size_bytes: int, kind: str = OUTBOX) -> Waiting:
    one = Waiting(account)
    one.waiter = account.wait(kind, size_bytes, one.wake)
    return one


def is_granted(one: Waiting) -> bool:
    assert one.waiter is not None
    return one.waiter.is_granted


def test_a_second_account_finds_as_much_memory_as_the_first_one_took() -> None:
    shared = pool()
    first, second = MemoryAccount(shared, "a"), MemoryAccount(shared, "b")
    for account in (first, second):
        while (room := account.room(50)) > 1:
            account.charge(OUTBOX, room)
    assert 325 <= first.beyond_allowance() <= 333
    assert 215 <= second.beyond_allowance() <= 222
    assert MemoryAccount(shared, "c").room(1000) >= 145


def test_accounts_of_one_subject_share_its_share() -> None:
    shared = pool()
    accounts = [MemoryAccount(shared, "crowd") for _ in range(100)]
    for account in accounts:
        while (room := account.room(50)) > 1:
            account.charge(OUTBOX, room)
    held = sum(one.beyond_allowance() for one in accounts)
    assert held <= shared.total_bytes // 2
    assert MemoryAccount(shared, "somebody else").room(1000) >= shared.total_bytes // 6
    assert MemoryAccount(shared, "somebody else").room(500, 500) == 500  # it can't be divided


def test_a_small_message_is_granted_memory_when_all_is_used() -> None:
    shared = pool()
    filled(shared)
    account = MemoryAccount(shared, "a")
    assert account.room(ALLOWANCE + 1, ALLOWANCE + 1) == 0
    assert account.room(1000) == ALLOWANCE
    account.charge(OUTBOX, ALLOWANCE)
    assert not account.is_over
    account.charge(OUTBOX, 1)
    assert account.is_over


def test_a_waiting_account_is_granted_memory_when_some_is_released() -> None:
    shared = pool()
    crowd = filled(shared)
    borrower = waiting(MemoryAccount(shared, "b"), LOAN)
    assert is_granted(borrower)
    assert borrower.account.has_loan
    one = waiting(MemoryAccount(shared, "a"), 100)
    assert not is_granted(one)
    crowd.release(UNFINISHED, 89)
    assert not is_granted(one)
    crowd.release(UNFINISHED, 1)
    assert is_granted(one)
    assert one.woken_count == 1
    assert one.account.held(OUTBOX) == 100


def test_the_account_that_holds_least_is_granted_first() -> None:
    shared = pool()
    crowd = filled(shared)
    assert is_granted(waiting(MemoryAccount(shared, "b"), LOAN))
    rich = MemoryAccount(shared, "rich")
    rich.charge(OUTBOX, 100)
    first = waiting(rich, 50)
    second = waiting(MemoryAccount(shared, "poor"), 50)
    crowd.release(UNFINISHED, 180)
    assert is_granted(second)
    assert not is_granted(first)


def test_messages_larger_than_a_share_get_the_loan_in_the_order_of_waiting() -> None:
    shared = pool()
    filled(shared)
    large = [waiting(MemoryAccount(shared, f"client {number}"), 400) for number in range(4)]
    for number, one in enumerate(large):
        assert [is_granted(other) for other in large] == [other <= number for other in range(4)]
        assert one.account.has_loan
        assert shared.used_bytes == shared.total_bytes  # the loan is beside the shares
        one.account.release(OUTBOX, 400)
    assert shared.borrower is None


def test_a_subject_with_many_waiting_accounts_gets_the_loan_only_once_before_another() -> None:
    shared = pool()
    filled(shared)
    many = [waiting(MemoryAccount(shared, "many"), 400) for _ in range(5)]
    other = waiting(MemoryAccount(shared, "one"), 400)
    assert [is_granted(one) for one in many] == [True, False, False, False, False]
    many[0].account.close()
    assert is_granted(other)
    assert not is_granted(many[1])


def test_an_account_with_the_loan_uses_it_for_one_message_only() -> None:
    shared = pool()
    filled(shared)
    account = MemoryAccount(shared, "a")
    assert is_granted(waiting(account, 100, UNFINISHED))
    assert account.room(1000) == LOAN + ALLOWANCE - 100
    more = waiting(account, 300, UNFINISHED)
    assert is_granted(more)
    other = waiting(account, 50, OUTBOX)
    assert not is_granted(other)
    assert account.is_over
    next_one = waiting(MemoryAccount(shared, "b"), 400)
    account.settle()
    assert is_granted(next_one)
    assert not is_granted(other)
    assert shared.used_bytes == shared.total_bytes + 400 - ALLOWANCE
    account.release(UNFINISHED, 400)
    next_one.account.close()
    assert is_granted(other)  # by the loan again: the shares are still used up


def test_the_loan_is_not_given_for_a_message_larger_than_itself() -> None:
    shared = pool()
    filled(shared)
    huge = waiting(MemoryAccount(shared, "a"), LOAN + ALLOWANCE + 1)
    fits = waiting(MemoryAccount(shared, "b"), LOAN + ALLOWANCE)
    assert not is_granted(huge)
    assert is_granted(fits)


def test_a_connection_that_ends_releases_its_memory_and_its_waiters() -> None:
    shared = pool()
    crowd = filled(shared)
    one = MemoryAccount(shared, "a")
    one.charge(OUTBOX, 50)
    assert is_granted(waiting(one, 300, UNFINISHED))
    assert one.has_loan
    left = waiting(one, 100, OUTBOX)
    other = waiting(MemoryAccount(shared, "b"), 400)
    one.close()
    one.close()
    assert (left.woken_count, is_granted(left)) == (1, False)
    assert is_granted(other)
    other.account.close()
    crowd.close()
    assert (shared.used_bytes, shared.held_bytes, shared.waiting_count) == (0, 0, 0)
    assert shared.largest(10) == []
    late = waiting(one, 5)
    assert (late.woken_count, is_granted(late)) == (1, False)
    one.charge(OUTBOX, 5)
    assert shared.held_bytes == 0
    assert one.room(77) == 77


def test_a_waiter_that_withdraws_releases_its_grant_and_others_go_on() -> None:
    shared = pool()
    crowd = filled(shared)
    lent, queued = (
        waiting(MemoryAccount(shared, "a"), 400),
        waiting(MemoryAccount(shared, "b"), 400),
    )
    last = waiting(MemoryAccount(shared, "c"), 400)
    assert lent.waiter is not None
    assert queued.waiter is not None
    queued.waiter.withdraw()
    lent.waiter.withdraw()
    assert not is_granted(queued)
    assert is_granted(last)
    crowd.close()
    last.account.close()
    assert shared.held_bytes == 0


def test_the_default_memory_budget_has_room_for_the_largest_record_and_all_shares() -> None:
    budget = MemoryBudget()
    promised = sum(
        one.total_bytes + one.loan_bytes
        for one in (budget.messages, budget.tasks, budget.from_peers)
    )
    assert promised + CONNECTIONS_MAX * MEMORY_ALLOWANCE_BYTES <= MEMORY_BUDGET_BYTES
    one = budget.connection("a", is_peer=False)
    assert one.outgoing.room(RECORD_BYTES_MAX, RECORD_BYTES_MAX) == RECORD_BYTES_MAX
    assert MEMORY_LOAN_BYTES > RECORD_BYTES_MAX


def test_clients_take_no_memory_from_the_share_of_nodes() -> None:
    budget = MemoryBudget()
    client, peer = budget.connection("a", is_peer=False), budget.connection("b", is_peer=True)
    client.outgoing.charge(OUTBOX, MEMORY_BUDGET_BYTES)
    peer.outgoing.charge(OUTBOX, 2 * MEMORY_BUDGET_BYTES)
    assert peer.outgoing.room(RECORD_BYTES_MAX) == RECORD_BYTES_MAX
    assert peer.incoming.room(RECORD_BYTES_MAX, RECORD_BYTES_MAX) == RECORD_BYTES_MAX
    peer.incoming.charge(UNFINISHED, 5000)
    client.tasks.charge("readings", 70)
    assert [one for one in budget.usage() if one.held_bytes] == [
        Usage("outbox", MEMORY_BUDGET_BYTES),
        Usage("readings", 70),
        Usage("peer_outbox", 2 * MEMORY_BUDGET_BYTES),
        Usage("peer_unfinished", 5000),
    ]
    assert budget.largest(1)[0][0] == "a"
    client.close()
    peer.close()
    assert not any(one.held_bytes for one in budget.usage())


def test_a_connection_that_this_side_opened_has_no_memory_bound() -> None:
    memory = unbounded_memory()
    memory.outgoing.charge(OUTBOX, 1 << 40)
    assert memory.outgoing.room(1 << 40) == 1 << 40
    assert not memory.outgoing.is_over


class Sharing(RuleBasedStateMachine):
    """Subjects with several connections do as they like."""

    accounts = Bundle("accounts")

    def __init__(self) -> None:
        super().__init__()
        self.pool = pool()
        self.open: list[MemoryAccount] = []
        self.waiting: list[Waiting] = []

    @rule(target=accounts, subject=st.sampled_from("abcd"))
    def connect(self, subject: str) -> MemoryAccount:
        account = MemoryAccount(self.pool, subject)
        self.open.append(account)
        return account

    @rule(account=accounts, size=st.integers(1, 400), kind=st.sampled_from([OUTBOX, UNFINISHED]))
    def take(self, account: MemoryAccount, size: int, kind: str) -> None:
        if room := account.room(size, min(size, 20)):
            before = self.pool.used_bytes
            account.charge(kind, room)
            assert self.pool.used_bytes <= max(before, self.pool.total_bytes)

    @rule(account=accounts, size=st.integers(1, 500), kind=st.sampled_from([OUTBOX, UNFINISHED]))
    def wait(self, account: MemoryAccount, size: int, kind: str) -> None:
        if account in self.open:
            self.waiting.append(waiting(account, size, kind))

    @rule(account=accounts, kind=st.sampled_from([OUTBOX, UNFINISHED]), share=st.floats(0, 1))
    def release(self, account: MemoryAccount, kind: str, share: float) -> None:
        if account in self.open:
            account.release(kind, int(account.held(kind) * share))

    @rule(account=accounts)
    def finish(self, account: MemoryAccount) -> None:
        before = self.pool.used_bytes
        account.settle()
        assert self.pool.used_bytes <= max(before, self.pool.total_bytes) + LOAN

    @rule(number=st.integers(0, 20))
    def withdraw(self, number: int) -> None:
        if number < len(self.waiting):
            waiter = self.waiting.pop(number).waiter
            assert waiter is not None
            if not waiter.is_granted:
                waiter.withdraw()

    @rule(account=consumes(accounts))
    def close(self, account: MemoryAccount) -> None:
        account.close()
        self.open.remove(account)
        self.waiting = [one for one in self.waiting if one.account is not account]

    @invariant()
    def sums_are_right(self) -> None:
        shared = self.pool
        used = sum(one.beyond_allowance() for one in self.open if not one.has_loan)
        assert shared.used_bytes == used
        assert shared.held_bytes == sum(one.held_bytes for one in self.open)
        if shared.borrower is not None:
            assert shared.borrower.beyond_allowance() <= LOAN
        assert sum(size for _, size in shared.largest(100)) == used

    @invariant()
    def who_would_fit_does_not_wait(self) -> None:
        for one in self.waiting:
            assert one.waiter is not None
            first = (
                next(
                    other
                    for other in self.waiting
                    if other.account.name == one.account.name
                    and other.waiter is not None
                    and not other.waiter.is_granted
                )
                if not one.waiter.is_granted
                else None
            )
            if first is one and not one.account.has_loan:
                assert not one.account.room(one.waiter.size_bytes, one.waiter.size_bytes)
                assert self.pool.borrower is not None or (
                    one.account.beyond_allowance(one.waiter.size_bytes) > LOAN
                )

    def teardown(self) -> None:
        """Everybody who holds something gives it back some day: then nobody waits for ever."""
        left = [one for one in self.waiting if not is_granted(one)]
        for _ in range(len(left) + 2):
            for account in self.open:
                for kind in (OUTBOX, UNFINISHED):
                    account.release(kind, account.held(kind))
        assert all(is_granted(one) for one in left)
        for account in self.open:
            account.close()
        assert (self.pool.used_bytes, self.pool.held_bytes, self.pool.waiting_count) == (0, 0, 0)


Sharing.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_no_grant_exceeds_the_pool_and_nobody_waits_for_ever = Sharing.TestCase
