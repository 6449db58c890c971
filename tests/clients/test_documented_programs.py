"""Every program in the documents about clients runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.kit.cluster import running_cluster

DOCUMENTS = [
    Path(__file__).parents[2] / "docs" / name for name in ("clients.md", "subscriptions.md")
]
PROGRAMS = {
    f"{document.stem} {number}": program
    for document in DOCUMENTS
    for number, program in enumerate(
        re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL), 1
    )
}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_document_about_clients_has_programs(document: Path) -> None:
    assert f"{document.stem} 4" in PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
async def test_each_documented_program_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS[name]
    ending = "trio.run(main)\n"
    assert program.endswith(ending)
    async with running_cluster(tmp_path) as cluster:
        names: dict[str, object] = {}
        source = program.removesuffix(ending).replace("ws://127.0.0.1:7000", cluster.register.url)
        exec(compile(source, name, "exec"), names)
        await names["main"]()  # type: ignore[operator]
    assert capsys.readouterr().out
