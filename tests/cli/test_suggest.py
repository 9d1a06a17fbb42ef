"""aos_cli.suggest: the published client's rule for near misses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aos_cli.suggest import did_you_mean, edit_distance, nearest_names

WORDS = st.text(alphabet="abc", max_size=8)


@given(WORDS, WORDS)
def test_distance_is_symmetric_and_zero_only_for_equals(left: str, right: str) -> None:
    assert edit_distance(left, right) == edit_distance(right, left)
    assert (edit_distance(left, right) == 0) == (left == right)
    assert edit_distance(left, right) <= max(len(left), len(right))


@given(WORDS, WORDS, WORDS)
def test_distance_obeys_the_triangle(a: str, b: str, c: str) -> None:
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)


def test_nearest_first_ties_by_name_exact_never() -> None:
    assert nearest_names("lst", ["list", "last", "lost", "list-all", "lst"]) == ("last", "list", "lost")


def test_the_bound_is_two_or_a_third_of_the_length() -> None:
    assert nearest_names("ab", ["abcd"]) == ("abcd",)
    assert nearest_names("ab", ["abcde"]) == ()
    assert nearest_names("completionsxxx", ["completions"]) == ("completions",)


def test_the_words() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["a"]) == "did you mean `a`?"
    assert did_you_mean(["a", "b", "c"]) == "did you mean `a`, `b` or `c`?"
