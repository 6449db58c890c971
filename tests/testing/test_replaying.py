"""A failure says how to repeat it, and leaves a page where one is asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import octopi.testing
from octopi.testing import Cluster, MisuseError

NAME = "tests/test_shop.py::test_orders"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("OCTOPI_TEST_SEED", raising=False)
    monkeypatch.delenv("OCTOPI_TEST_PAGES", raising=False)
    return monkeypatch


async def fail(cluster: Cluster) -> None:
    """A test with a fault, after things worth looking at."""
    async with cluster.client() as client:
        await client.create_topic("orders", 1)
    raise AssertionError("the shop is empty")


def notes(seed: int | None = None, *, name: str = NAME) -> list[str]:
    """The last lines of a failure of the test *name*."""
    with pytest.MonkeyPatch.context() as patch:
        if name:
            patch.setenv("PYTEST_CURRENT_TEST", f"{name} (call)")
        else:
            patch.delenv("PYTEST_CURRENT_TEST")
        return _notes(seed)


def _notes(seed: int | None) -> list[str]:
    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(fail, seed=seed)
    return caught.value.__notes__


def test_a_failure_ends_with_the_command_that_repeats_it() -> None:
    assert notes(7) == ["again: OCTOPI_TEST_SEED=7 pytest tests/test_shop.py::test_orders"]


def test_a_test_name_that_a_shell_would_split_is_quoted() -> None:
    assert notes(7, name=f"{NAME}[a b]") == [
        "again: OCTOPI_TEST_SEED=7 pytest 'tests/test_shop.py::test_orders[a b]'"
    ]


def test_a_failure_outside_of_pytest_names_the_program(environment: pytest.MonkeyPatch) -> None:
    environment.setattr("sys.argv", ["shop.py"])
    assert notes(7, name="") == ["again: OCTOPI_TEST_SEED=7 python shop.py"]


def test_the_environment_variable_overrides_the_seed(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OCTOPI_TEST_SEED", "9")
    assert "SEED=9 " in notes(7)[0]
    assert "SEED=9 " in notes()[0]
    seeds: list[int] = []

    @octopi.testing.simulated(seeds=100)
    async def test(cluster: Cluster) -> None:
        seeds.append(cluster.seed)

    test()
    assert seeds == [9]


def test_a_seed_that_is_no_number_is_refused(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OCTOPI_TEST_SEED", "lucky")
    with pytest.raises(MisuseError, match="'lucky'; it has to be a whole number"):
        octopi.testing.run(fail)


def test_a_failure_page_is_written_where_it_is_asked_for(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages = tmp_path / "pages"
    environment.setenv("OCTOPI_TEST_PAGES", str(pages))
    first, second = notes(7)
    path = pages / "tests-test_shop.py-test_orders-seed-7.html"
    assert first == f"what happened: {path}"
    assert second.startswith("again: ")
    text = path.read_text()
    assert "the shop is empty" in text
    assert "AssertionError" in text
    assert "OCTOPI_TEST_SEED=7 pytest tests/test_shop.py::test_orders" in text
    assert "T1b register made durable that there is a topic" in text


def test_writing_a_failure_page_does_not_change_the_run(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scene(cluster: Cluster) -> str:
        with cluster.random_faults():
            await cluster.sleep(20)
        return cluster._world.digest

    without = octopi.testing.run(scene)
    environment.setenv("OCTOPI_TEST_PAGES", str(tmp_path))
    assert octopi.testing.run(scene) == without


def test_the_failure_page_shows_the_events_in_conflict(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def scene(cluster: Cluster) -> None:
        cluster.always(lambda: cluster.now < 3, "it is early")
        async with cluster.client() as client:
            await cluster.sleep(5)
            await client.create_topic("orders", 1)

    environment.setenv("OCTOPI_TEST_PAGES", str(tmp_path))
    with pytest.raises(octopi.testing.Violation):
        octopi.testing.run(scene)
    (path,) = tmp_path.iterdir()
    assert "it is early" in path.read_text()
    assert "What broke it" in path.read_text()


def test_an_error_keeps_its_cause() -> None:
    async def scene(cluster: Cluster) -> None:
        raise AssertionError("too few") from KeyError("hats")

    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(scene)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_single_error_in_a_group_is_raised_without_the_group() -> None:
    async def scene(cluster: Cluster) -> None:
        raise ExceptionGroup("many", [ExceptionGroup("more", [KeyError("hats")])])

    with pytest.raises(KeyError):
        octopi.testing.run(scene)


def test_the_trace_of_a_failure_begins_in_the_test() -> None:
    with pytest.raises(AssertionError) as caught:
        octopi.testing.run(fail)
    files = [Path(entry.path).name for entry in caught.traceback]
    assert files[-1] == Path(__file__).name
    assert "driver.py" not in files
