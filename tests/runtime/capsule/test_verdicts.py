"""What the matchers say in words is what they decide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aos_runtime.capsule.topics import MAX_MATCH_SEGMENTS, covers, matches_dispatch, subscription_problem
from aos_runtime.capsule.verdicts import judge_match

TABLE = json.loads((Path(__file__).parents[2] / "golden/topics/matchers.json").read_text("utf-8"))
DEEP = ".".join("a" * (MAX_MATCH_SEGMENTS + 1))


@pytest.mark.parametrize("row", TABLE["matchers"], ids=lambda row: f"{row['pattern']} {row['topic']}")
def test_the_verdicts_are_those_of_the_truth_table(row: dict[str, object]) -> None:
    verdicts = {one.matcher: one for one in judge_match(str(row["topic"]), str(row["pattern"]))}
    assert verdicts["delivery"].matches == verdicts["subscribe-acl"].matches == row["covers"]
    assert verdicts["dispatch"].matches == row["dispatch"]
    gate = subscription_problem(str(row["pattern"])) is None
    assert verdicts["subscribe-gate"].matches == (gate and row["covers"])


@pytest.mark.parametrize(
    ("topic", "pattern", "delivery", "dispatch"),
    [
        ("a.b.c.d", "a.b.*", "the last `*` takes `c.d`",
         "the pattern has 3 segments and the topic 4 segments; `*` takes exactly one"),
        ("a.b", "a.b.*", "a last `*` takes one segment or more, and 2 segments leave none for it",
         "the pattern has 3 segments and the topic 2 segments; `*` takes exactly one"),
        ("a.c", "a.b", "segment 2 is `c`, and the pattern wants `b`",
         "segment 2 is `c`, and the pattern wants `b`"),
        ("a.b", "a.b", "the same words", "the same words"),
        ("a", "*", "every `*` takes one segment", "every `*` takes one segment"),
        ("a.b", "a", "the pattern has 1 segment and the topic 2 segments; `*` takes exactly one",
         "the pattern has 1 segment and the topic 2 segments; `*` takes exactly one"),
        (DEEP[:-2], DEEP[:-2], "the same words", "the same words"),
        (DEEP, "a.*", "deeper than 20 segments matches nothing",
         "the pattern has 2 segments and the topic 21 segments; `*` takes exactly one"),
        ("a.x.c", "a.*.c", "every `*` takes one segment", "every `*` takes one segment"),
        ("a..b", "a.*", "the topic is empty or has an empty segment, and matches nothing",
         "the topic is empty or has an empty segment, and matches nothing"),
        ("a", "", "the pattern is empty or has an empty segment, and matches nothing",
         "the pattern is empty or has an empty segment, and matches nothing"),
        (DEEP, DEEP, "deeper than 20 segments matches nothing", "the same words"),
    ],
)  # fmt: skip
def test_the_words(topic: str, pattern: str, delivery: str, dispatch: str) -> None:
    verdicts = {one.matcher: one for one in judge_match(topic, pattern)}
    assert (verdicts["delivery"].why, verdicts["dispatch"].why) == (delivery, dispatch)
    assert verdicts["delivery"].matches == covers(pattern, topic)
    assert verdicts["dispatch"].matches == matches_dispatch(pattern, topic)


def test_every_matcher_gives_one_verdict_in_one_order() -> None:
    rows = [(one.matcher, one.matches, one.why) for one in judge_match("a.b", "a.*")]
    tail = "the last `*` takes `b`"
    assert rows == [
        ("delivery", True, tail),
        ("publish-acl", True, tail),
        ("subscribe-acl", True, tail),
        ("dispatch", True, "every `*` takes one segment"),
        ("subscribe-gate", True, "the pattern may be subscribed to at run time, and matches"),
    ]
    _, acl, *_ = judge_match("b", "a")
    assert (acl.matcher, acl.matches) == ("publish-acl", False)
    *_, gate = judge_match("a.x.b", "a.*.b")
    assert (gate.matches, gate.why) == (
        False,
        "a runtime subscription may hold one `*`, as its last segment only",
    )
    *_, gate = judge_match("b", "a")
    assert (gate.matches, gate.why) == (False, "segment 1 is `b`, and the pattern wants `a`")


def test_what_may_not_be_published_is_covered_and_still_refused() -> None:
    deep = ".".join("abcdefghi")
    verdicts = {one.matcher: one for one in judge_match(deep, "a.*")}
    assert verdicts["delivery"].matches
    assert not verdicts["publish-acl"].matches
    assert verdicts["publish-acl"].why == "topic has more than 8 segments"
