"""docs/metrics.md and docs/examples, compared with what real nodes export."""

from __future__ import annotations

import json
import re
from pathlib import Path

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

import octopi
from octopi.admin.broker_view import BrokerNodeView
from octopi.admin.metrics import Metrics
from octopi.cli.config import NodeSettings
from octopi.errors import RefusedError
from octopi.roles.broker.node import BrokerNode, BrokerOptions, run_broker
from tests.admin.nodes import ask, serving_nodes
from tests.admin.test_protected_nodes import token, with_tokens
from tests.kit.cluster import Cluster
from tests.kit.join_secrets import SECRETS

DOCS = Path(__file__).parents[2] / "docs"

_LINE = re.compile(r"\| `(\w+)` \| (\w+) \| [^|]+ \| ([^|]*)\| [^|]+ \|")
_OF_A_HISTOGRAM = re.compile(r"_(bucket|count|sum)$")


@attrs.frozen
class Exported:
    """A metric, as Prometheus sees it."""

    kind: str
    labels: frozenset[str]


def documented() -> dict[str, dict[str, Exported]]:
    """By section and name."""
    found: dict[str, dict[str, Exported]] = {}
    for section in (DOCS / "metrics.md").read_text().split("\n## ")[1:]:
        title = section.partition("\n")[0]
        for name, kind, labels in _LINE.findall(section):
            words = frozenset(one.strip() for one in labels.split(",") if one.strip())
            found.setdefault(title, {})[name] = Exported(kind, words)
    return found


async def exported(urls: list[str], bearer: str) -> dict[str, Exported]:
    """What the nodes at *urls* have, together: not each has a sample of everything."""
    found: dict[str, Exported] = {}
    for url in urls:
        page = await ask(url, "/metrics", authorization=bearer)
        for family in text_string_to_metric_families(page.body.decode()):
            assert family.documentation, f"{family.name} says nothing of itself"
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = {label for one in family.samples for label in one.labels} - {"le"}
            before = found.get(name, Exported(family.type, frozenset()))
            found[name] = Exported(family.type, before.labels | labels)
    return found


async def test_nodes_export_exactly_the_documented_metrics(tmp_path: Path) -> None:
    """A cluster in which everything that has a metric has happened."""
    common = with_tokens(tmp_path, NodeSettings())
    mine = token("app", create="*", publish="*", subscribe="*", consume="*")
    async with serving_nodes(tmp_path, 2, common=common) as nodes:
        for url in (nodes.register, *nodes.brokers):
            async with octopi.connect(url, token="nonsense") as stranger:
                with pytest.raises(RefusedError):
                    await stranger.topics()
        async with octopi.connect(nodes.register, token=mine) as client:
            async with client.producer() as producer:
                await producer.send("orders", b"umbrella")
            async with client.subscription("orders", "billing") as subscription:
                await anext(subscription)
            async with client.subscription("orders", "mails", mode="shared") as queue:
                await anext(queue)
            async with client.consumer("orders", start="earliest") as consumer:
                await anext(consumer)
                with trio.fail_after(20):
                    place = (await client.describe_topic("orders")).partitions[0]
                    while len(place.in_sync) < 2:
                        await trio.sleep(0.05)  # nothing announces it to clients
                        place = (await client.describe_topic("orders")).partitions[0]
                register = await exported([nodes.register], f"Bearer {mine}")
                broker = await exported(nodes.brokers, f"Bearer {mine}")
    says = documented()
    assert list(says) == ["Every node", "Brokers", "Relays", "Registers", "Rings"]
    assert broker == says["Every node"] | says["Brokers"]
    assert register == says["Every node"] | says["Registers"]


@pytest.mark.parametrize("name", ["grafana.json", "alerts.yml"])
def test_examples_ask_for_metrics_that_exist(name: str) -> None:
    text = (DOCS / "examples" / name).read_text()
    known = {one for section in documented().values() for one in section}
    asked = {_OF_A_HISTOGRAM.sub("", one) for one in re.findall(r"\b(?:octopi|process)_\w+", text)}
    assert len(asked) > 5
    assert asked <= known
    labels = {
        label
        for section in documented().values()
        for one in section.values()
        for label in one.labels
    }
    used = set(re.findall(r"(\w+)=~?\\?\"", text)) | set(re.findall(r"\$labels\.(\w+)", text))
    assert used <= labels | {"instance", "job"}


def test_no_two_panels_of_the_dashboard_overlap() -> None:
    panels = json.loads((DOCS / "examples" / "grafana.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        place = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not place & taken
        assert max(x for x, _ in place) < 24
        taken |= place
        assert panel["targets"]


async def test_a_broker_exports_series_of_a_bounded_number_of_logs(tmp_path: Path) -> None:
    """So that a scrape of a broker with many logs takes a short time; the busiest are shown."""
    shown: list[BrokerNode] = []
    async with trio.open_nursery() as nursery:
        cluster = Cluster(nursery, tmp_path)
        await cluster.start_register()
        options = BrokerOptions(
            "127.0.0.1:0", str(tmp_path / "b1"), [cluster.register.url], SECRETS
        )

        async def broker(*, task_status: trio.TaskStatus[str]) -> None:
            await run_broker(
                cluster.environment,
                options,
                stop=trio.Event(),
                show=shown.append,
                task_status=task_status,
            )

        await nursery.start(broker)
        async with (
            octopi.connect(cluster.register.url) as client,
            client.producer() as producer,
        ):
            for number in range(5):
                await producer.send(f"topic-{number}", bytes(100 * (number + 1)))
        text = Metrics(BrokerNodeView(shown[0]), logs_max=2).text().decode()
        internal = len(list(shown[0].replicas.replicas))  # one in each partition
        assert f"octopi_logs {5 + internal}.0" in text
        assert set(re.findall(r'topic="([^"]+)"', text)) == {"topic-4", "topic-3"}
        nursery.cancel_scope.cancel()
