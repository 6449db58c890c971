"""Drives octopi.js, in Node and in a page."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.browser.pages import open_client_page, serve_console
from tests.browser.tools import STATIC, node_command
from tests.conformance.driving import Command, Refused

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE: Final = Path(__file__).parent

LACKS: Final = {
    "a stop at the end": "a page shows what comes, so a reading goes on until it is ended",
    "a time-out for brokers to come back": "a reading looks for a broker for as long as it is open",
    "an error of consumers whose client is closed": "a loop over a reading ends without an error "
    "when the page closes the client",
    "creation of topics with options": "a page makes a topic, with default options, by publishing; "
    "the others are for programs and operators",
    "deletion of topics": "it is for programs and operators",
    "several topics and patterns": "a page reads one topic with each reading",
}


class _JavaScriptDriver:
    lacks: ClassVar[Mapping[str, str]] = LACKS

    def do(self, command: Command) -> Any:  # noqa: ANN401
        """See `tests.conformance.driving.Driver`."""
        answer = self._ask(command)
        assert "failed" not in answer, (command, answer)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer["result"]

    def _ask(self, command: Command) -> dict[str, Any]:
        raise NotImplementedError

    def reset(self) -> None:
        """See `tests.conformance.driving.Driver`."""
        self.do({"do": "reset"})

    def close(self) -> None:
        """See `tests.conformance.driving.Driver`."""


@contextmanager
def node_driver(url: str) -> Iterator[_JavaScriptDriver]:
    """octopi.js in Node, module by module, at the cluster of *url*."""
    command = [*node_command(), str(HERE / "driver.mjs"), STATIC.as_uri(), url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield _InNode(process)
        finally:
            process.kill()


class _InNode(_JavaScriptDriver):
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def _ask(self, command: Command) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]


@contextmanager
def page_driver(url: str, browser: Browser) -> Iterator[_JavaScriptDriver]:
    """The bundle of octopi.js in a page of the node at *url*, which is given the console's files
    here."""
    context = browser.new_context()
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    serve_console(page)
    try:
        yield _InPage(page, url)
        assert problems == []
    finally:
        context.close()


class _InPage(_JavaScriptDriver):
    def __init__(self, page: Page, url: str) -> None:
        self._page = page
        self._url = url
        open_client_page(page, url, HERE, "octopi.min.js")
        page.evaluate("async () => { window.driver = await import('/test/driver.mjs'); }")

    def _ask(self, command: Command) -> dict[str, Any]:
        # As texts: playwright's own way to pass an object loses a header named "__proto__".
        answer = self._page.evaluate(
            """async ([command, url]) =>
                JSON.stringify(await driver.perform(JSON.parse(command), Octopi, url))""",
            [json.dumps(command), self._url],
        )
        return json.loads(answer)  # type: ignore[no-any-return]
