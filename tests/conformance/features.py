"""What a client may lack: which steps of a scenario need which feature."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

SHARED_POSITIONS: Final = "positions that all clients share"
QUEUE_MODES: Final = {"shared", "key_shared"}

_OF_ARGUMENTS: Final = {
    "send": {
        "key": "keys",
        "headers": "headers",
        "timestamp": "time stamps",
        "partition": "choice of the partition",
        "expected_end": "appending on a condition",
    },
    "read": {
        "partition": "choice of the partition",
        "on_gap": "skipping of gaps",
        "stop_at_end": "a stop at the end",
        "wait_s": "waiting for a topic",
        "create": "waiting for a topic",
        "give_up_s": "a time-out for brokers to come back",
    },
    "connect": {"timeout_s": "a time-out for requests", "token": "tokens"},
}
_OF_STEPS: Final = {
    "create topic": "creation of topics with options",
    "delete topic": "deletion of topics",
    "describe topic": "description of topics",
    "join": "durable subscriptions",
    "produce": "named producers",
}
_OF_STARTS: Final = {
    "time": "a start at a time",
    "last": "a start at the last messages",
    "position of": "a start at a position",
    "offset of": "a start at an offset",
}
_OF_REFUSALS: Final = {
    "closed": "clients that are opened and closed",
    "topic_replaced": "an error if a topic was made again",
}

FEATURES: Final = sorted(
    {
        *(one for of in _OF_ARGUMENTS.values() for one in of.values()),
        *_OF_STEPS.values(),
        *_OF_STARTS.values(),
        *_OF_REFUSALS.values(),
        SHARED_POSITIONS,
        "a refusal of names that topics can't have",
        "an error of consumers whose client is closed",
        "empty values",
        "partitions",
        "publishing and reading",
        "queues",
        "reading of all partitions at once",
        "several topics and patterns",
    }
)
"""All of them: the rows of the table in docs/clients.md."""


def features_of(scenario: dict[str, Any]) -> set[str]:
    """What a client needs for *scenario*."""
    found = set(_found(scenario["steps"])) | set(scenario.get("needs", []))
    topics = scenario.get("topics", {"log": scenario}).values()
    if any((one or {}).get("partitions", 1) > 1 for one in topics):
        found.add("partitions")
        if any(map(_reads_all_partitions, scenario["steps"])):
            found.add("reading of all partitions at once")
    return found


def _reads_all_partitions(step: dict[str, Any]) -> bool:
    return step["do"] in {"read", "consume"} and "partition" not in step and "refused" not in step


def _found(steps: Iterable[dict[str, Any]]) -> Iterable[str]:
    for step in steps:
        if step["do"] in {"connect", "send", "send numbered", "read", "consume"}:
            yield "publishing and reading"
        deed = "read" if step["do"] == "consume" else step["do"]
        if deed in _OF_STEPS:
            yield _OF_STEPS[deed]
        for argument, feature in _OF_ARGUMENTS.get(deed, {}).items():
            if argument in step:
                yield feature
        if deed == "send" and "" in (step.get("value"), *step.get("values", [])):
            yield "empty values"
        refused = step.get("refused", [])
        for refusal in [refused] if isinstance(refused, str) else refused:
            if refusal in _OF_REFUSALS:
                yield _OF_REFUSALS[refusal]
        match step.get("from"):
            case int():
                yield "a start at an offset"
            case dict(start):
                if start.keys() & {"id", "ahead"} or step.get("by") == "another client":
                    yield SHARED_POSITIONS
                yield from (_OF_STARTS[name] for name in start if name in _OF_STARTS)
            case str(text) if text.startswith("v1:"):
                yield SHARED_POSITIONS
        if isinstance(step.get("topic"), list):
            yield "several topics and patterns"
        if step.get("with", {}).get("mode") in QUEUE_MODES:
            yield "queues"
