"""The reference of the library, from its docstrings, and of the pages that each node serves."""

from __future__ import annotations

import inspect

from octopi.admin import cluster_pages, site, subscription_pages, topic_search

_MODULES = {
    "octopi": "The client for Trio, and what all clients share: messages, positions, errors.",
    "octopi.aio": "The client for asyncio.",
    "octopi.blocking": "The client for blocking programs.",
    "octopi.lite": "The calls of a small Kafka; [Lite](../docs/lite.md) explains it.",
    "octopi.properties": "What has to hold in a program, stated in its code; "
    "[testing](../docs/testing.md#properties-in-the-program-itself) explains it.",
    "octopi.testing": "A whole cluster in a test; [testing](../docs/testing.md) explains it.",
    "octopi.spark.session": "Topics as tables and streams; [Spark](../docs/spark.md) explains it.",
}
_MADE_FROM_OCTOPI = ("octopi.aio", "octopi.blocking")
"""Modules whose methods are made when they are imported (`octopi.aio.wrapping`), so that their
source doesn't have them."""
_INSPECTED = "    options:\n      force_inspection: true\n"


def module_pages() -> dict[str, str]:
    """A page for each public module, by its path.  What stands in them is filled in by
    mkdocstrings."""
    return {
        f"reference/{name}.md": f"# {name}\n\n{says}\n\n::: {name}\n"
        + (_INSPECTED if name in _MADE_FROM_OCTOPI else "")
        for name, says in _MODULES.items()
    }


def node_pages_page() -> str:
    """A page on the paths that a node answers over HTTP."""
    functions = {**vars(cluster_pages), **vars(subscription_pages), **vars(topic_search)}
    rows = []
    for name in sorted(site.PAGES):
        text = inspect.getdoc(functions[f"{name.replace('-', '_')}_page"]) or ""
        summary = " ".join(text.split("\n\n")[0].replace("``", "`").split())
        rows.append(f"| `{site.API}{name}` | {summary} |")
    return "\n".join(
        [
            "# Pages of a node",
            "",
            "What every node answers over HTTP, on the port of everything else. "
            "Lists are cut into pages: the answer's `next` is the query parameter `after` of the "
            "next one, and `limit` bounds the entries. Where nodes ask for tokens, a request has "
            "`Authorization: Bearer TOKEN`.",
            "",
            "| path | what it has |",
            "|---|---|",
            "| `/v1/streams/TOPIC` | a topic as a stream: [HTTP](../docs/http.md) |",
            "| `/console/` | the [console](../docs/console.md), and the client for pages |",
            "| `/healthz` | 200 as soon as the node runs |",
            "| `/readyz` | whether it can be used, and why not |",
            "| `/metrics` | [metrics](../docs/metrics.md) for Prometheus |",
            f"| `{site.API}status` | what this node is, and how it is |",
            *rows,
            "",
        ]
    )
