"""Every program in the documents about clients runs as it is printed there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import trio

from tests.kit.cluster import running_cluster

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs/clients.md", ROOT / "docs/subscriptions.md"]
OF_SPARK = "from octopi.spark"
PROGRAMS = {
    f"{document.stem} {number}": program
    for document in [ROOT / "README.md", *DOCUMENTS]
    for number, program in enumerate(
        re.findall(r"^```python\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL), 1
    )
    if not program.startswith(OF_SPARK)
}


OF_TRIO = "trio.run(main)\n"
OF_ASYNCIO = "asyncio.run(main())\n"
OF_BLOCKING = "import octopi.blocking\n"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_document_about_clients_has_programs(document: Path) -> None:
    assert f"{document.stem} 4" in PROGRAMS


@pytest.mark.parametrize("name", PROGRAMS)
async def test_each_documented_program_runs(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = PROGRAMS[name]
    async with running_cluster(tmp_path) as cluster:
        names: dict[str, object] = {}
        source = program.replace("ws://127.0.0.1:7000", cluster.register.url)
        if program.endswith(OF_TRIO):
            exec(compile(source.removesuffix(OF_TRIO), name, "exec"), names)
            await names["main"]()  # type: ignore[operator]
        else:
            assert program.endswith(OF_ASYNCIO) or OF_BLOCKING in program
            whole = compile(source, name, "exec")
            await trio.to_thread.run_sync(exec, whole, names)
    assert capsys.readouterr().out
