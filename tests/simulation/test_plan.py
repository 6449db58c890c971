"""Plans go to lines and JSON and come back; broken ones are refused in words."""

import base64
import zlib
from random import Random

import attrs
import cbor2
import pytest
from hypothesis import given, settings, strategies as st

from octopi.simulation.disk.faults import Delay, DiskFault
from octopi.simulation.faults.actions import (
    AtEffect,
    AtStep,
    AtTime,
    BreakDisk,
    CorruptLink,
    Cut,
    InjectedFault,
    Kill,
    LosePower,
    Pause,
    When,
)
from sim.generate.scenarios import SCENARIOS_OF_KIND
from sim.generate.swarm import describe, draw
from sim.run import plan as plans
from sim.run.plan import (
    Plan,
    PlanError,
    WorkloadOptions,
    from_json,
    from_token,
    is_stale,
    to_json,
    to_token,
)

USUAL = Plan(
    987_654_321,
    brokers=4,
    flush_interval_s=0.2,
    workload=WorkloadOptions(topics=2, burst_count=8, chores=("topic", "move")),
    faults=(
        InjectedFault(AtStep("P3b", "follower", 17), LosePower(0.35)),
        InjectedFault(AtEffect("sync", "during", "leader", 3), Kill(None)),
        InjectedFault(AtTime(0.734), Cut("register", 1.25, "in", True), "leader/1"),
        InjectedFault(AtStep("E8b", "register", 2), Pause(3.0)),
        InjectedFault(When("acknowledged", 55), BreakDisk(DiskFault("sync", Delay())), "follower"),
    ),
)


def test_a_usual_plan_with_five_faults_fits_into_two_hundred_characters() -> None:
    token = to_token(USUAL)
    assert len(token) <= 200
    assert token.startswith("oc1-")
    assert not {" ", "'", "\n"} & set(token)
    assert from_token(token) == USUAL


@settings(max_examples=200)
@given(st.integers(0, 2**40))
def test_every_drawn_plan_survives_token_and_json(seed: int) -> None:
    plan = draw(seed)
    assert from_token(to_token(plan)) == plan
    assert from_json(to_json(plan)) == plan


def test_defaults_take_no_room_and_odd_numbers_are_kept_exactly() -> None:
    assert len(to_token(Plan(1))) < 20
    odd = Plan(1, latency_s=1 / 3, faults=(InjectedFault(AtTime(0.1 + 0.2), CorruptLink()),))
    assert from_token(to_token(odd)) == odd


@pytest.mark.parametrize("kind", SCENARIOS_OF_KIND)
def test_scenarios_of_each_kind_survive_token_and_json(kind: str) -> None:
    for scenario in SCENARIOS_OF_KIND[kind]:
        for number in range(20):
            drawn = scenario(Random(number))
            workload = attrs.evolve(WorkloadOptions(topic_partitions=1), **drawn.load)
            changes = {"faults": drawn.faults, "workload": workload, **drawn.options}
            plan = attrs.evolve(Plan(number), **changes)
            assert from_token(to_token(plan)) == plan
            assert from_json(to_json(plan)) == plan


def test_every_seed_has_one_plan_and_its_options_in_words() -> None:
    assert draw(7) == draw(7) != draw(8)
    lines = describe(USUAL).splitlines()
    assert "brokers = 4" in lines
    assert sum(line.startswith("fault: ") for line in lines) == 5


@pytest.mark.parametrize(
    "token",
    ["", "oc2-abc", "oc1-", "oc1- ", "oc1-0", to_token(USUAL)[:-9], to_token(USUAL)[:40] + "~~~~"],
)
def test_a_text_that_is_not_a_token_is_refused(token: str) -> None:
    with pytest.raises(PlanError):
        from_token(token)


def test_a_token_of_other_versions_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    token = to_token(USUAL)
    assert not is_stale(token)
    monkeypatch.setattr(plans, "versions_digest", lambda: bytes(8))
    assert is_stale(token)
    assert from_token(token) == USUAL


def test_json_that_is_not_a_plan_is_refused() -> None:
    odd = '{"seed": 1, "cut_off": "\\ud800"}'
    for text in ("", "[]", '{"seed": "x"}', '{"seed": 1, "colour": "red"}', odd):
        with pytest.raises(PlanError):
            from_json(text)


def test_impossible_plans_are_refused() -> None:
    with pytest.raises(PlanError, match="brokers"):
        Plan(1, brokers=65)
    with pytest.raises(PlanError, match="partitions"):
        Plan(1, partitions=1, workload=WorkloadOptions(topic_partitions=2))
    wrong = base64.b85encode(b"\x00\x00nonsense").decode()
    with pytest.raises(PlanError):
        from_token(f"oc1-{wrong}")


@pytest.mark.parametrize("content", [b"", "text", [], [1], {"seed": 1}, {0: 1, 14: [[7]]}, None])
def test_a_token_that_holds_something_else_than_a_plan_is_refused(content: object) -> None:
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = bytes(2) + deflate.compress(cbor2.dumps(content)) + deflate.flush()
    with pytest.raises(PlanError):
        from_token("oc1-" + base64.b85encode(packed).decode())
