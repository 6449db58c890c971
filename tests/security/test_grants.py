"""Patterns and verbs: what is granted, and that everything else is not."""

import fnmatch

import pytest
from hypothesis import given, strategies as st

from octopi.errors import InvalidOptionError
from octopi.security.grants import EVERYTHING, Grants, Verb, grants, matches

NAMES = st.text("ab.-_", min_size=1, max_size=8)
PATTERNS = st.text("ab.*", min_size=1, max_size=8)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders", "order", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders.", True),
        ("orders.*", "orders", False),
        ("*.eu", "orders.eu", True),
        ("*.eu", "orders.us", False),
        ("a*b*c", "abc", True),
        ("a*b*c", "aXbXc", True),
        ("a*b*c", "acb", False),
        ("a*a", "a", False),
        ("*", "anything", True),
        ("*", "", True),
        ("orders", "orders\n", False),
    ],
)
def test_a_star_stands_for_any_characters(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


@given(PATTERNS, NAMES)
def test_patterns_match_as_in_the_shell(pattern: str, topic: str) -> None:
    assert matches(pattern, topic) == fnmatch.fnmatchcase(topic, pattern)


def test_matching_any_pattern_takes_little_time() -> None:
    """Work in proportion, not exponential: this would not end before the test's time-out."""
    assert not matches("a*" * 90 + "b", "a" * 200)


@given(st.sampled_from(Verb), st.sampled_from(Verb), NAMES)
def test_a_verb_grants_itself_and_no_other(granted: Verb, asked: Verb, topic: str) -> None:
    some = grants({granted: [f"{topic}/*" if granted is Verb.CONSUME else topic]})
    assert some.allows(asked, topic) == (granted is asked)
    assert not some.allows(asked, topic + "x")
    assert some.covers(topic)
    assert not some.covers(topic + "x")


@pytest.mark.parametrize("verb", Verb)
def test_the_cluster_as_a_whole_is_granted_by_the_star_alone(verb: Verb) -> None:
    assert grants({verb: ["*"]}).allows(verb, None)
    almost = ["a*/*", "*/*"] if verb is Verb.CONSUME else ["a*", "**"]
    assert not grants({verb: almost}).allows(verb, None)


def test_a_token_grants_nothing_by_default_and_a_node_without_tokens_everything() -> None:
    for verb in Verb:
        assert not Grants({}).allows(verb, "t")
        assert not grants({verb: []}).allows(verb, "t")
        assert EVERYTHING.allows(verb, "t")
        assert EVERYTHING.allows(verb, None)
    assert not Grants({}).covers("t")


@pytest.mark.parametrize("pattern", ["", "a b", "a/b", "ä", "a\n", "[ab]", "?", "x" * 201])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not a pattern"):
        grants({"publish": [pattern]})


@pytest.mark.parametrize(
    "pattern", ["orders", "orders/", "/billing", "a/b/c", "a b/c", "a/\0", "**", "a/" + "x" * 201]
)
def test_a_pattern_of_consume_has_a_topic_and_a_subscription(pattern: str) -> None:
    with pytest.raises(InvalidOptionError, match="is not a pattern: write TOPIC/SUBSCRIPTION"):
        grants({"consume": [pattern]})


def test_a_star_in_a_pattern_of_consume_stays_in_its_part() -> None:
    some = grants({"consume": ["orders*/bill*"]})
    assert some.allows(Verb.CONSUME, "orders.eu", "billing")
    assert some.allows(Verb.CONSUME, "orders.eu")
    assert not some.allows(Verb.CONSUME, "orders.eu", "shipping")
    assert not some.allows(Verb.CONSUME, "other", "billing")
    assert some.covers("orders.eu")
    assert not some.covers("bill")


def test_unknown_verbs_and_too_many_patterns_are_refused() -> None:
    with pytest.raises(InvalidOptionError, match="there is no verb 'write'; there are create,"):
        grants({"write": ["*"]})
    with pytest.raises(InvalidOptionError, match="at most 50 patterns"):
        grants({"publish": ["t"] * 51})
