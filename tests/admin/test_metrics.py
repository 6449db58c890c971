"""What strangers wrote does not reach who reads metrics as it is."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from octopi.admin.metrics import Metrics
from octopi.admin.node_views import NodeFacts
from octopi.printable import has_controls
from octopi.roles.streams.exchange import StreamService
from octopi.transport.server_statistics import ServerStatistics

EVIL = 'evil\x1b[2J\n\x9b31m"\\\u202e\u2028'


class _Node:
    """A node whose name is a stranger's."""

    traffic = ServerStatistics()

    @property
    def streams(self) -> StreamService:
        raise NotImplementedError

    def facts(self) -> NodeFacts:
        return NodeFacts("register", EVIL, "c", None, None, [])

    def why_not_ready(self) -> str:
        return ""

    def members(self) -> list[str]:
        return []

    def collectors(self, logs_max: int) -> list[Collector]:
        return []


def test_no_control_character_of_a_name_reaches_the_metrics() -> None:
    text = Metrics(_Node()).text().decode()
    assert not any(map(has_controls, text.split("\n")))
    families = {one.name: one for one in text_string_to_metric_families(text)}
    shown = families["octopi_node_info"].samples[0].labels["agent"]
    assert shown == r'evil\x1b[2J\n\x9b31m"\\u202e\u2028'
