"""Every script that the documents have for pages runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from harness.processes import node_processes
from tests.browser.pages import http_url

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    script
    for page in ("README.md", "docs/browser.md", "docs/subscriptions.md")
    for script in re.findall(r"^```js\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
]


def test_the_readme_has_a_short_script_and_the_documents_have_others() -> None:
    assert len(SCRIPTS) == 6
    assert len(SCRIPTS[0].splitlines()) <= 15


@pytest.mark.process
def test_the_documented_scripts_run(tmp_path: Path, page: Page) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    with node_processes(tmp_path) as nodes:
        register = nodes.register()
        nodes.broker(register)
        page.goto(f"{http_url(register.url)}/console/")
        for script in SCRIPTS:
            page.evaluate(f"async () => {{ {script} }}")
    assert "0 a parasol" in said
    assert any(re.fullmatch(r"0 21\.5 \d+", line) for line in said)
    assert [line for line in said if line.startswith(("booked", "goes on"))] == [
        "booked umbrella",
        "booked parasol",
        "goes on with raincoat",
    ]
    assert "shown 2" in said
    assert "priced at 0" in said
    assert sorted(line for line in said if line.startswith("read ")) == [
        "read scan 1 at attempt 1",
        "read scan 2 at attempt 2",
        "read scan 3 at attempt 1",
    ]
    assert "answers that came too late: 0" in said
