"""The table of attacks tells the truth about figures and goals."""

from tests.attack.__main__ import ATTACKS
from tests.attack.frame import Figure, Result, quantile, table


def test_nodes_withstand_an_attack_only_if_all_its_figures_keep_their_bounds() -> None:
    good, bad = Figure("stall", 10, "ms", 50), Figure("stall", 51, "ms", 50)
    assert Result("one", [good]).is_met
    assert not Result("one", [good, bad]).is_met
    assert not Result("one", []).is_met, "nothing measured is nothing met"
    assert not Result("one", [good], fault="not done after 60 s").is_met


def test_the_table_has_a_line_for_each_figure_and_for_what_could_not_be_measured() -> None:
    figures = [Figure("stall", 10.4, "ms", 50, "median 2"), Figure("left", 1, "", 0)]
    results = [Result("flood", figures), Result("broken", [], "not done after 60 s")]
    lines = table(results).splitlines()
    assert len(lines) == 4
    assert " ".join(lines[1].split()) == "flood stall 10.4 ms (median 2) <= 50 ms met"
    assert lines[2].endswith("MISSED")
    assert "not done after 60 s" in lines[3]
    assert lines[3].endswith("MISSED")


def test_every_quantile_of_no_values_is_infinite() -> None:
    assert quantile([], 0.99) == float("inf")
    assert quantile([3, 1, 2], 0.5) == 2
    assert quantile(range(100), 0.99) == 99


def test_all_attacks_together_are_planned_for_less_than_five_minutes() -> None:
    assert sum(one.planned_s for one in ATTACKS) < 300
    assert all(one.planned_s < one.timeout_s / 2 for one in ATTACKS)


def test_no_two_attacks_have_the_same_name() -> None:
    names = [one.name for one in ATTACKS]
    assert len(set(names)) == len(names)
