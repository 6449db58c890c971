"""docs/clients.md and docs/http.md say what each client lacks, as the drivers do; errors have the
same codes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from octopi import errors
from octopi.errors import NotDeliveredError, OctopiError, RefusedError, Status
from tests.browser.tools import STATIC
from tests.conformance.clients import CLIENTS
from tests.conformance.features import FEATURES
from tests.conformance.http_driver import LACKS

DOCUMENTS: Final = Path(__file__).parents[2] / "docs"


def _section(document: str = "clients.md", heading: str = "What each client can do") -> str:
    text = (DOCUMENTS / document).read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_table_of_clients_is_what_their_drivers_declare() -> None:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in _section().splitlines()
        if line.startswith("|")
    ]
    (_, *columns), _, *table = rows
    assert [row[0] for row in table] == FEATURES
    declared = {client.column: client.lacks for client in CLIENTS.values() if client.column}
    assert columns == list(declared)
    for feature, *cells in table:
        for column, cell in zip(columns, cells, strict=True):
            assert cell == ("no" if feature in declared[column] else "yes"), (feature, column)


def test_each_no_in_the_table_has_its_reason_below() -> None:
    reasons = [line for line in _section().splitlines() if line.startswith("- ")]
    declared = {
        f"- {client.column}, {feature}: {reason}."
        for client in CLIENTS.values()
        if client.column not in {"", "HTTP"}
        for feature, reason in client.lacks.items()
    }
    assert set(reasons) == declared


def test_what_http_lacks_is_listed_in_its_document_with_the_reasons() -> None:
    section = _section("http.md", "What HTTP does not have")
    listed = [line for line in section.splitlines() if line.startswith("- ")]
    assert listed == [f"- {feature}: {reason}." for feature, reason in sorted(LACKS.items())]


def test_clients_of_one_column_lack_the_same() -> None:
    for one in CLIENTS.values():
        for other in CLIENTS.values():
            assert one.column != other.column or one.lacks == other.lacks


def _classes(cls: type[OctopiError]) -> Iterator[type[OctopiError]]:
    for one in cls.__subclasses__():
        if one.__module__ == errors.__name__:
            yield one
            yield from _classes(one)


def test_each_error_of_python_has_a_code_that_octopi_js_knows() -> None:
    script = (STATIC / "client/errors.js").read_text().partition("export const CODES")[0]
    known = set(re.findall(r'\["(\w+)", (?:true|false)\]', script))
    assert {status.name.lower() for status in Status} <= known
    for cls in _classes(OctopiError):
        made = cls.__new__(cls)
        if isinstance(made, RefusedError):
            made.status = made.default_status or Status.INTERNAL
        assert made.code in known, cls


@pytest.mark.parametrize(
    ("cause", "code"),
    [
        (None, "not_delivered"),
        (RefusedError("no", Status.FORBIDDEN), "forbidden"),
        (RefusedError("not now", Status.NOT_READY), "not_delivered"),
        (errors.UnreachableError("nobody there"), "not_delivered"),
    ],
    ids=["time-out", "refused for good", "refused for now", "unreachable"],
)
def test_a_message_that_is_not_stored_has_the_code_of_what_can_not_pass(
    cause: OctopiError | None, code: str
) -> None:
    error = NotDeliveredError("it is not stored")
    error.__cause__ = cause
    assert error.code == code
