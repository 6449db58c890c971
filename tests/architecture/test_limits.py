"""Each limit, and each row of docs/security.md, is in the test plan, with tests that there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAN = (ROOT / "docs/test-plan.md").read_text()
SECURITY = (ROOT / "docs/security.md").read_text()

BOUNDS_NOBODY_ELSE = {
    "units": {"KIB", "MIB", "GIB"},
    "intervals: how often, or how soon again, a node or client does something by itself": {
        "ACCEPT_WAIT_S",
        "REFUSED_BALLOT_WAIT_S",
        "REFUSED_BALLOT_WAIT_S_MAX",
        "BACKOFF_S_FIRST",
        "BACKOFF_S_MAX",
        "DELETION_RETRY_S",
        "DISK_LINE_INTERVAL_S",
        "DISK_LOOK_INTERVAL_S",
        "EVENTS_FRESH_S",
        "PULSE_STATUS_S",
        "HEARTBEAT_INTERVAL_S",
        "HISTORY_INTERVAL_S",
        "HISTORY_LOOK_S",
        "LITE_ATTEMPT_S",
        "LOAD_AVERAGE_S",
        "LOAD_INTERVAL_S",
        "SHED_REST_S",
        "LITE_PARTITIONS",
        "HISTORY_RETRY_S_MAX",
        "KNOWN_VALUES_S",
        "LINK_TRIES",
        "MEMBERSHIP_HEARTBEAT_INTERVAL_S",
        "NOTES_SYNC_S",
        "ELECTION_TURN_S",
        "ORDER_RETRY_S",
        "ORDER_RETRY_S_MAX",
        "PROBE_S",
        "PULSE_S",
        "POSITION_REPORT_INTERVAL_S",
        "QUESTION_INTERVAL_S",
        "SEAL_RETRY_S",
        "MARK_LOOK_S",
        "QUOTA_LOOK_INTERVAL_S",
        "REGISTER_BEAT_S",
        "RELAY_BEAT_S",
        "RELAY_FOUND_RETRY_S",
        "RELAY_SCRUB_S",
        "RELAY_SETS_BALANCE_S",
        "RELAY_MEMORY_LOOK_S",
        "RELAY_SETS_LOOK_S",
        "RELAY_STORE_RETRY_S",
        "RELAY_TICK_S",
        "REBALANCE_INTERVAL_S",
        "RELIEF_PAUSE_S",
        "RELIEF_PAUSE_S_MAX",
        "REMINDER_S",
        "REMINDER_S_MAX",
        "REPLICA_TICK_S",
        "MOVE_RETRY_S",
        "RETENTION_CHECK_INTERVAL_S",
        "RETIRED_COUNT_INTERVAL_S",
        "SILENCE_GROWTH",
        "STABILISE_S",
        "STATUS_INTERVAL_S",
        "TOKEN_REFRESH_SHARE",
        "TOPIC_LIST_INTERVAL_S",
        "TOPIC_WAIT_INTERVAL_S",
        "WALL_CLOCK_CHECK_S",
    },
    "how long a node or client waits for something before it goes on without it": {
        "ACCEPTANCES_WAIT_S",
        "AGREEMENT_ATTEMPT_S",
        "AGREEMENT_TIMEOUT_S",
        "ASK_CONNECT_S",
        "ASK_TIMEOUT_S",
        "DELIVERY_TIMEOUT_S",
        "DRAIN_TIMEOUT_S",
        "ELECTION_WAIT_S",
        "ENDING_PATIENCE_S",
        "ENTRANCE_SILENCE_S",
        "FENCE_S",
        "FINISH_S",
        "GATHER_S",
        "GROW_TIMEOUT_S",
        "HAND_OVER_ALL_S",
        "HAND_OVER_ASK_S",
        "HAND_OVER_PATIENCE_S",
        "HAND_OVER_TIMEOUT_S",
        "HIGHWATER_PAUSE_S",
        "LEADER_SILENCE_S",
        "LINGER_S",
        "MANY_BATCHES_LINGER_S",
        "LINK_GRACE_S",
        "LOAD_UNKNOWN_S",
        "LOOKUP_TIMEOUT_S",
        "LOOK_TIMEOUT_S",
        "MOVE_TIMEOUT_S",
        "PREPARE_S",
        "READER_SILENCE_S",
        "RECONNECT_GRACE_S",
        "RECONNECT_TIMEOUT_S",
        "REGISTER_GOODBYE_S",
        "REGISTER_LOST_S",
        "RELAY_ANSWER_S",
        "RELAY_AWAY_S",
        "RELAY_BACK_S",
        "RELAY_BALANCE_S",
        "RELAY_BALANCE_S_MAX",
        "RELAY_CHANGE_S",
        "RELAY_CONNECT_S",
        "RELAY_FETCH_S",
        "RELAY_FORM_S",
        "RELAY_GREET_S",
        "RELAY_LOST_S",
        "RELAY_PRODUCE_S",
        "RELAY_SILENCE_S",
        "RELAY_STUCK_S",
        "REGISTER_QUORUM_S",
        "REGISTER_SILENCE_S",
        "REGISTER_SILENCE_S_MAX",
        "REQUEST_TIMEOUT_S",
        "RING_ANSWER_S",
        "RING_IDLE_S",
        "RECORD_ACCEPTORS",
        "REPLACE_ACCEPTOR_S",
        "REPLACE_REPLICA_S",
        "SEAL_S",
        "SETTLE_S",
        "SHARE_LEADS_S",
        "TOPIC_ORDER_S",
        "SUSPECT_S",
    },
    "defaults of options, and how a node or client does its own work": {
        "ACCEPTOR_SNAPSHOT_ENTRIES",
        "BATCHES_IN_FLIGHT",
        "BENCH_BYTES_MAX",
        "BENCH_SAMPLES_MAX",
        "BOOK_DROPPED_SHARE",
        "BOOK_SILENT_SHARE",
        "CHECKPOINT_BYTES",
        "CLIENT_BATCH_BYTES",
        "FEW_BATCHES_COUNT",
        "GROWN_BATCH_BYTES",
        "IN_PLACE_BYTES_MIN",
        "CONSUMER_WINDOW_BYTES",
        "DISK_ROOM_BYTES_MIN",
        "FETCH_BYTES_DEFAULT",
        "FLUSHES_AT_A_TIME",
        "FLUSH_BYTES",
        "FLUSH_INTERVAL_S",
        "FLUSH_MESSAGES",
        "HISTORY_BATCH_MAX",
        "HISTORY_RETENTION_BYTES",
        "HISTORY_RETENTION_S",
        "HISTORY_SAMPLES_MAX",
        "HISTORY_SEGMENT_BYTES",
        "HISTORY_TOPICS_MAX",
        "INDEX_INTERVAL_BYTES",
        "INTERNAL_KEY_BYTES_MAX",
        "INTERNAL_SEGMENT_BYTES_MAX",
        "INTERNAL_VALUE_BYTES_MAX",
        "SNAPSHOT_BYTES_MIN",
        "SNAPSHOT_FACTOR",
        "SNAPSHOT_PIECE_BYTES",
        "JOURNAL_SNAPSHOT_ENTRIES",
        "JOIN_MEETINGS",
        "LOGS_MADE_AT_ONCE_MAX",
        "LOOKUP_STEPS_MAX",
        "MOVES_AT_ONCE_MAX",
        "PARTITION_COUNT_DEFAULT",
        "POINT_DRAWS",
        "HAND_OVER_ATTEMPTS_MAX",
        "RECORD_ACCEPTORS_FIRST",
        "TOPIC_ENTRIES_AT_ONCE_MAX",
        "PRODUCER_BUFFER_BYTES",
        "RELAY_REPAIRS_AT_ONCE",
        "RELAY_REPAIR_TRIES",
        "RELAY_CLOCK_APART_S",
        "RELAY_CLOCK_BEATS",
        "RELAY_REPEATS_MAX",
        "REPLICATED_PAGE_BYTES",
        "REPLICATED_WINDOW_ENTRIES",
        "REPLICA_COUNT_DEFAULT",
        "RETIRED_KEEP_S",
        "SEGMENT_AGE_S_MAX",
        "SEGMENT_BYTES_MAX",
        "SHED_GAIN",
        "SHED_LIGHT_LOAD",
        "SHED_LOAD_MIN",
        "SHED_LOOKS",
        "SHED_RATIO",
        "SHED_RATIO_OVER",
        "SYNCS_ALONE_MAX",
        "SYNCS_TOGETHER_MIN",
    },
}
"""What is no bound of what somebody else can have a node do, by the reason why."""


def constants() -> list[str]:
    """The names that limits.py defines."""
    tree = ast.parse((ROOT / "octopi/limits.py").read_text())
    return [
        node.target.id
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]


def section(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    assert text.count(f"\n## {title}\n") == 1, title
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of the table that begins with *heading*, as cells."""
    [rows] = re.findall(rf"^\| {re.escape(heading)} \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [line.removeprefix("| ").removesuffix(" |").split(" | ") for line in rows.splitlines()]


def named(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


LIMITS, THREATS = section(PLAN, "Limits"), section(PLAN, "Threats")


def test_each_limit_stands_in_the_plan_or_is_listed_as_limiting_no_other_party() -> None:
    exempt = [name for names in BOUNDS_NOBODY_ELSE.values() for name in names]
    in_plan = [name for cells in table(LIMITS, "Limit | Test") for name in named(cells[0])]
    assert sorted(exempt + in_plan) == sorted(constants())


@pytest.mark.parametrize(
    ("title", "heading", "columns", "shown"),
    [
        ("Limits", "of | limit | beyond it", 2, table(LIMITS, "of | limit | Test")),
        ("Threats, and what holds against them", "an attacker who | is stopped by", 1,
         table(THREATS, "an attacker who | Test")),
        ("The join secret", "a program without the secret that | result", 1,
         table(THREATS, "does | Test")),
    ],
    ids=["limits", "threats", "join secret"],
)  # fmt: skip
def test_each_row_of_the_page_on_security_stands_in_the_plan(
    title: str, heading: str, columns: int, shown: list[list[str]]
) -> None:
    promised = table(section(SECURITY, title), heading)
    assert promised
    assert [cells[:-1] for cells in shown] == [cells[:columns] for cells in promised]


def test_each_row_of_the_plan_names_tests_and_only_existing_ones() -> None:
    files = (ROOT / "tests").rglob("test_*.py")
    there = {name for path in files for name in re.findall(r"def (test_\w+)", path.read_text())}
    rows = re.findall(r"^\| (?!.*\| Test \|$)([^-].*) \|$", LIMITS + THREATS, re.MULTILINE)
    assert len(rows) > 130
    for row in rows:
        *_, last = row.split(" | ")
        tests = named(last)
        assert tests, f"no test shows: {row}"
        assert set(tests) <= there, row
