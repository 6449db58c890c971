"""Each input that was ever kept holds its property."""

from __future__ import annotations

import pytest

from tests.fuzz.corpus import CORPUS, stored
from tests.fuzz.registry import TARGETS
from tests.fuzz.search import KEPT_BYTES_MAX
from tests.fuzz.target import Target, pieces

BY_NAME = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@BY_NAME
def test_the_property_holds_for_each_input_of_the_corpus(target: Target) -> None:
    inputs = stored(CORPUS, target.name)
    assert inputs
    for name, data in inputs.items():
        try:
            target.check(data)
        except Exception as error:
            error.add_note(f"input {name}: {data[:200]!r}")
            raise


def test_each_folder_of_the_corpus_belongs_to_a_target() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)


@BY_NAME
def test_the_corpus_is_small(target: Target) -> None:
    inputs = stored(CORPUS, target.name)
    assert len(inputs) <= 100
    assert [name for name, data in inputs.items() if len(data) > KEPT_BYTES_MAX] == []


@BY_NAME
def test_the_corpus_has_valid_inputs_and_inputs_that_the_first_check_refuses(
    target: Target,
) -> None:
    passed = {target.check(data) for data in stored(CORPUS, target.name).values()}
    assert passed == {False, True}


def test_pieces_together_are_the_bytes_that_were_cut() -> None:
    for data in (b"", b"a", bytes(range(256)) * 20):
        cut = pieces(data)
        assert [b"".join(one) for one in cut] == [data] * 3
    assert max(map(len, cut[1])) < len(data) / 40
    assert len(set(map(len, cut[2]))) > 3
