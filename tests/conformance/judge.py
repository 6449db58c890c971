"""Runs a scenario with a driver, and compares what the client saw with what the list says.

A scenario says a sentence, and has steps.  Its topics are made before (`topics`: their names and
options; else one); a step without `topic` is about the first one.  A step `do`es something, and
either `sees` something or is `refused` (a list: what of that is seen depends on the moment).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final, Protocol

from octopi.position import Position
from octopi.security.grants import Verb
from tests.conformance import features
from tests.conformance.driving import Command, Driver, Refused, given_bytes, shown_bytes
from tests.conformance.operating import RETENTION
from tests.security.test_authorisation import everything, fresh

Scenario = dict[str, Any]
Step = dict[str, Any]

_BY_A_CLIENT: Final = {
    "send",
    "send numbered",
    "sent",
    "produce",
    "create topic",
    "delete topic",
    "describe topic",
    "consume",
}
_BY_NAME: Final = {"close", "next", "position"}
_BY_A_MEMBER: Final = {
    *("commit", "mark", "claims", "gaps", "leave", "fail", "take"),
    *("acknowledge", "release", "reject", "extend", "attempt", "deadline in"),
}
_MESSAGE_FIELDS: Final = {"topic", "partition", "offset", "timestamp", "key", "headers", "value"}


class Operating(Protocol):
    """Whoever does what is not the client's: `tests.conformance.operating.Operator`."""

    def do(self, topic: str, step: Step) -> Any:  # noqa: ANN401
        """Carry out a step that concerns *topic*."""


class Judge:
    """Of one scenario, in topics whose names begin with *prefix*.

    *other*: the driver of another client, which goes on from positions of the first.
    """

    def __init__(self, driver: Driver, other: Driver, operator: Operating, prefix: str) -> None:
        self._first = driver
        self._other = other
        self._operator = operator
        self._prefix = prefix
        self._saved: dict[str, Any] = {}
        self._connected: set[str] = set()
        self._numbers_read: dict[str, int] = {}
        self._topic = ""

    def run(self, scenario: Scenario) -> None:
        """Raise `AssertionError` if the client sees something else than the list says."""
        topics = scenario.get("topics") or {"log": _of_default_topic(scenario)}
        self._topic = next(iter(topics))
        for name, made in topics.items():
            if made is not None:
                self._operator.do(self._prefix + name, {"do": "make", **made})
        try:
            for step in scenario["steps"]:
                self._judge(step)
        finally:
            self._first.reset()
            self._other.reset()

    def _judge(self, step: Step) -> None:
        refusal = ""
        try:
            seen = self._carry_out(step)
        except Refused as refused:
            refusal = str(refused)
        expected = step.get("refused", "")
        expected = expected if isinstance(expected, list) else [expected]
        assert refusal in expected, (step, f"it was refused: {refusal or 'no'}")
        if refusal:
            return
        if "save" in step:
            self._saved[step["save"]] = seen
        if "sees" in step:
            self._compare(step, seen)

    def _carry_out(self, step: Step) -> Any:  # noqa: ANN401
        match step["do"]:
            case "connect":
                return self._connect(step)
            case "send" if "values" in step:
                each = [{**step, "value": one} for one in step["values"]]
                return [self._by_a_client(one) for one in each]
            case "read":
                return self._read(step)
            case "numbers":
                return self._numbers(step)
            case "next":
                return _in_order(self._driver(step).do({**step, **self._sizes(step)}))
            case "join":
                return self._join(step)
            case "take one each":
                takes: list[Step] = [{"do": "take", "as": one, "count": 1} for one in step["as"]]
                return sorted(text for one in takes for text in self._first.do(one))
            case "take lists":
                return sorted(self._first.do(step))
            case deed if deed in _BY_A_CLIENT:
                return self._by_a_client(step)
            case deed if deed in _BY_NAME or deed in _BY_A_MEMBER:
                return self._driver(step).do(step)
        return self._operator.do(self._name_of(step), step)

    # --- clients -----------------------------------------------------------------------

    def _driver(self, step: Step) -> Driver:
        """Of the client that the list is run with; or another, in which positions hold as well."""
        return self._other if "another client" in (step.get("by"), step.get("as")) else self._first

    def _connect(self, step: Step) -> None:
        token = step.get("token")
        if isinstance(token, dict):
            token = fresh(verbs=[Verb(one) for one in token["verbs"]])
        self._connected.add(step["as"])
        command = {**step, "token": token or everything()}
        if isinstance(step.get("server"), list):
            tell = {"do": "tell a broker"}
            command["server"] = [
                self._operator.do("", tell) if one == "a broker" else one for one in step["server"]
            ]
        self._driver(step).do(command)

    def _by_a_client(self, step: Step) -> Any:  # noqa: ANN401
        command = self._command(step)
        return self._driver(command).do(command)

    def _command(self, step: Step) -> Command:
        """As the driver gets it: with a client that is connected, names in full, a real start."""
        client = step.get("by", "client")
        if client not in self._connected:
            self._connect({"do": "connect", "as": client})
        command = {**step, "by": client, "topic": self._name_of(step)}
        if "from" in step:
            command["from"] = self._start(step["from"])
        if "expected_end" in step:
            command["expected_end"] = self._start(step["expected_end"])
        return command

    def _name_of(self, step: Step) -> Any:  # noqa: ANN401
        match step.get("topic", self._topic):
            case {"exactly": name}:
                return name
            case list(names):
                return [self._prefix + one for one in names]
            case name:
                return self._prefix + name

    def _start(self, start: Any) -> Any:  # noqa: ANN401
        match start:
            case {"position of": name}:
                text = self._saved[name]["position"]
                if "id" in start:
                    text = re.sub("@.*?:", f"@{start['id']}:", text)
                ahead = start.get("ahead", 0)
                return re.sub(r"=(\d+)", lambda found: f"={int(found[1]) + ahead}", text)
            case {"behind": name}:
                return self._saved[name]["next"]
            case {"offset of": name}:
                return self._saved[name]["offset"] + start.get("plus", 0)
        return start

    def _read(self, step: Step) -> dict[str, Any]:
        """Open a consumer, take some messages and its position, and close it."""
        driver = self._driver(step)
        opened = {**self._command(step), "do": "consume", "as": "reading"}
        driver.do(opened)
        try:
            wanted = {"count": step["count"], **self._sizes(step)}
            messages = driver.do({"do": "next", "as": "reading", **wanted})
            position = driver.do({"do": "position", "as": "reading"})
        finally:
            driver.do({"do": "close", "as": "reading"})
        if features.SHARED_POSITIONS not in driver.lacks:
            _check_position(position, messages)
        return {"messages": _in_order(messages), "position": position}

    def _numbers(self, step: Step) -> None:
        """Take so many messages, or all that are left of the saved receipts: each is the next
        number."""
        first = self._numbers_read.get(step["as"], 0)
        count = step["count"] if "count" in step else len(self._saved[step["of"]]) - first
        sizes = [len(str(number)) for number in range(first, first + count)]
        taken = self._driver(step).do(
            {"do": "next", "as": step["as"], "count": count, "sizes": sizes}
        )
        numbers = [int(bytes.fromhex(one["value"])) for one in taken]
        assert numbers == list(range(first, first + count)), step
        self._numbers_read[step["as"]] = first + count

    def _join(self, step: Step) -> Any:  # noqa: ANN401
        without = [verb for verb in Verb if verb != Verb.CONSUME]
        return self._first.do(
            {
                "do": "join",
                "as": step["as"],
                "topic": self._name_of(step),
                "name": step.get("name", "billing"),
                "token": fresh(verbs=without) if "token" in step else everything(),
                "options": step.get("with", {}),
                **({"takes": step["takes"]} if "takes" in step else {}),
            }
        )

    # --- comparing ---------------------------------------------------------------------

    def _expected(self, step: Step) -> Any:  # noqa: ANN401
        if step["sees"] == "the oldest":
            return [self._operator.do(self._prefix + self._topic, {"do": "tell the oldest"})]
        return step["sees"]

    def _sizes(self, step: Step) -> dict[str, list[int]]:
        """The sizes of the values that the client is to see, in bytes."""
        if "sees" not in step:
            return {}
        expected = self._expected(step)
        values = [one if isinstance(one, str) else one["value"] for one in expected]
        return {"sizes": [len(given_bytes(one)) for one in values]}

    def _compare(self, step: Step, seen: Any) -> None:  # noqa: ANN401
        expected = self._expected(step)
        if step["do"] in {"read", "next"}:
            messages = seen["messages"] if step["do"] == "read" else seen
            wanted = [self._message(one) for one in expected]
            found = [
                {field: one[field] for field in of}
                for one, of in zip(messages, wanted, strict=False)
            ]
            assert (found, len(messages)) == (wanted, len(wanted)), step
        elif step["do"] == "sent":
            _check_receipts(seen)
        elif step["do"] == "send":
            assert {field: seen[field] for field in expected} == expected, step
        else:
            assert seen == expected, step

    def _message(self, said: Any) -> dict[str, Any]:  # noqa: ANN401
        """The fields that an expected message has to have."""
        if isinstance(said, str):
            said = {"value": said}
        assert said.keys() <= _MESSAGE_FIELDS, said
        wanted = dict(said)
        if "topic" in said:
            wanted["topic"] = self._prefix + said["topic"]
        if "offset" in said:
            wanted["offset"] = self._start(said["offset"])
        if "headers" in said:
            wanted["headers"] = {
                name: shown_bytes(given_bytes(one)) for name, one in said["headers"].items()
            }
        for field in ("key", "value"):
            if said.get(field) is not None:
                wanted[field] = shown_bytes(given_bytes(said[field]))
        return wanted


def _of_default_topic(scenario: Scenario) -> dict[str, Any]:
    loses = any(one["do"] == "lose the oldest" for one in scenario["steps"])
    return {"partitions": scenario.get("partitions", 1), "options": RETENTION if loses else {}}


def _in_order(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By topic and partition: within a log they stay as they came."""
    return sorted(messages, key=lambda one: (one["topic"], one["partition"]))


def _check_position(text: str, messages: list[dict[str, Any]]) -> None:
    """A position is behind the last message of each log."""
    behind = {(one["topic"], one["partition"]): one["next"] for one in messages}
    places = {
        (position.topic, partition): place.offset
        for position in map(Position.parse, text.split())
        for partition, place in position.places.items()
    }
    assert behind.items() <= places.items(), (text, messages)


def _check_receipts(receipts: list[dict[str, Any]]) -> None:
    """Each message has a place of its own, behind the one before."""
    for one, following in pairwise(receipts):
        assert one.get("offset", 0) < following.get("offset", 1), (one, following)
