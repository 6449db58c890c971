"""How far a durable subscription is, as text."""

from __future__ import annotations

from datetime import UTC, datetime

from octopi import SubscriptionDefinition, SubscriptionStatus
from octopi.cli.output import say
from octopi.cli.queue_options import QUEUE_MODES
from octopi.cli.rendering import print_table, size


def print_status(status: SubscriptionStatus) -> None:
    """Print how far a subscription is, and its members."""
    definition = status.definition
    is_queue = definition.mode in QUEUE_MODES
    say(f"{definition.name} of topic {definition.topic}: {_facts(definition)}")
    say()
    print_table(
        [
            "PARTITION",
            *(() if is_queue else ("STATE", "MEMBER", "CLAIM")),
            "MARK",
            "HIGHWATER",
            "LAG",
            "AGE",
            *(("OPEN", "WAITING", "DEAD") if is_queue else ()),
            "STORED",
        ],
        [
            [
                one.partition,
                *(() if is_queue else (one.phase, one.member, one.claim)),
                one.mark,
                one.highwater,
                size(one.lag_bytes),
                f"{one.lag_ms / 1000:.1f} s",
                *((one.open_count, one.waiting_count, one.dead_count) if is_queue else ()),
                time_text(one.changed_ms),
            ]
            for one in status.logs
        ],
    )
    say()
    print_table(
        ["MEMBER", "STATIC", *(() if is_queue else ("LOGS",)), "NAME", "AGENT", "SUBJECT"],
        [
            [
                one.member,
                "yes" if one.static else "no",
                *(() if is_queue else (one.log_count,)),
                one.name,
                one.agent,
                one.subject,
            ]
            for one in status.members
        ],
    )
    for log in status.logs:
        for begin, end in log.skipped:
            say(f"partition {log.partition}: {begin} to {end} was lost and passed over")
        if log.lost is not None:
            begin, end = log.lost
            what = f"{begin} to {end} ({size(end - begin)})"
            say(f"partition {log.partition}: {what} was lost, and the next member will be told")
        if log.held_bytes:
            what = f"retention keeps {size(log.held_bytes)} for this subscription"
            say(f"partition {log.partition}: {what}")
        if log.letter_fault:
            say(f"partition {log.partition}: no dead letter can be written: {log.letter_fault}")
    if any(log.letter_fault for log in status.logs):
        places = ",".join(str(one) for one in definition.partitions)
        say(
            "messages that are to become dead letters wait; if their topic is gone, make it again: "
            f"`octopi-node topics create {status.dead_letters} --on {places}`"
        )
    elif any(log.dead_count for log in status.logs):
        say(
            f"dead letters are in the topic {status.dead_letters}: `octopi-node dead-letters list "
            f"{definition.name} --topic {definition.topic}`"
        )


def _facts(definition: SubscriptionDefinition) -> str:
    options = definition.options
    expires = "never expires"
    if options.expires_ms is not None:
        expires = f"expires after {options.expires_ms / 86_400_000:g} days without use"
    text = (
        f"{definition.mode}, {definition.state}, id {definition.sid}, session timeout "
        f"{options.session_timeout_ms / 1000:g} s, {expires}"
    )
    if definition.mode not in QUEUE_MODES:
        return text
    attempts = (
        "attempts without end" if options.attempts is None else f"{options.attempts} attempts"
    )
    return (
        f"{text}, {attempts}, ack timeout {options.ack_timeout_ms / 1000:g} s, window "
        f"{options.window}"
    )


def time_text(at_ms: int) -> str:
    """A time, in milliseconds since 1970, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="seconds")
