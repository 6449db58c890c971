"""Internal logs wait for the device where a topic of the partition does."""

from __future__ import annotations

from hypothesis import given, strategies as st

from octopi.identifiers import SUBSCRIPTIONS_LOG, TopicId
from octopi.replication.log_state import LogState
from octopi.replication.replica_logs import follow_topics

INTERNAL = TopicId(SUBSCRIPTIONS_LOG)


@given(st.lists(st.sampled_from(["internal", "flushed", "plain"]), max_size=8))
def test_adding_logs_one_by_one_says_the_same_as_looking_at_all_of_them(kinds: list[str]) -> None:
    logs: dict[TopicId, LogState] = {}
    for number, kind in enumerate(kinds):
        name = INTERNAL if kind == "internal" else TopicId(str(number))
        if name in logs:
            continue
        logs[name] = LogState.empty(flush_before_ack=kind == "flushed")
        before = {name: log.flush_before_ack for name, log in logs.items()}
        changed = follow_topics(logs, name)
        now = {name: log.flush_before_ack for name, log in logs.items()}
        assert changed == [name for name, flush in before.items() if now[name] != flush]
        assert not follow_topics(logs), "a look at all logs finds nothing more to change"


def test_of_many_topics_that_do_not_flush_only_the_new_one_is_looked_at() -> None:
    class Counted(dict[TopicId, LogState]):
        looks = 0

        def items(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
            self.looks += 1
            return super().items()

    logs = Counted({TopicId(str(number)): LogState.empty() for number in range(100)})
    logs[INTERNAL] = LogState.empty()
    logs[TopicId("new")] = LogState.empty()
    assert follow_topics(logs, TopicId("new")) == []
    assert not logs.looks
