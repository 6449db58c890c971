"""What is stored of the messages behind the mark of a queue: ranges and counts, as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from octopi.identifiers import Offset
from octopi.subscriptions.dead_letters import DeadLetters
from octopi.subscriptions.entries import LetterSequence
from octopi.subscriptions.queued_messages import MessageState, QueuedMessage


@attrs.frozen
class StoredQueue:
    """What of a queue counts once an entry is committed."""

    waiting: list[QueuedMessage]
    """Messages that were given back: how often they were dealt."""
    letters: DeadLetters
    sequence: LetterSequence
    numbered: frozenset[Offset]
    """Messages that are given up: their numbers."""


def settled_ranges(mark: Offset, numbers: Sequence[int]) -> Iterable[tuple[Offset, Offset]]:
    """The ranges that `octopi.subscriptions.entries.QueueEntry.settled` describes."""
    at = mark
    for distance, length in zip(numbers[::2], numbers[1::2], strict=True):
        begin = Offset(at + distance)
        at = Offset(begin + length)
        yield begin, at


def attempts_of(mark: Offset, numbers: Sequence[int]) -> Iterable[tuple[Offset, int]]:
    """The offsets and counts that `octopi.subscriptions.entries.QueueEntry.attempts` describes."""
    at = mark
    for distance, attempt in zip(numbers[::2], numbers[1::2], strict=True):
        at = Offset(at + distance)
        yield at, attempt


def settled_numbers(
    mark: Offset, messages: Iterable[QueuedMessage], later: Iterable[tuple[Offset, Offset]]
) -> list[int]:
    """The inverse of `settled_ranges`, of *messages* and of ranges behind them."""
    numbers: list[int] = []
    at = mark

    def add(begin: Offset, end: Offset) -> None:
        nonlocal at
        if begin == at and numbers:
            numbers[-1] += end - begin
        else:
            numbers.extend((begin - at, end - begin))
        at = end

    for one in messages:
        if one.state is MessageState.SETTLED:
            add(one.offset, one.end)
    for begin, end in later:
        add(max(begin, at), end)
    return numbers


def attempt_numbers(
    mark: Offset, messages: Iterable[QueuedMessage], later: Mapping[Offset, int]
) -> list[int]:
    """The inverse of `attempts_of`, of *messages* that were dealt and given back, and of *later*
    ones.  A delivery that is open is not counted: the next leader deals it anew."""
    numbers: list[int] = []
    at = mark
    for one in messages:
        count = one.counted
        if one.state is MessageState.OPEN:
            count -= 1
        elif one.state not in (MessageState.WAITING, MessageState.SPENT):
            continue
        if count:
            numbers.extend((one.offset - at, count))
            at = one.offset
    for offset in sorted(later):
        numbers.extend((offset - at, later[offset]))
        at = offset
    return numbers
