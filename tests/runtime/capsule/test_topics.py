"""One truth table drives every matcher; properties say what no table can."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.topics import (
    COMMAND_RUN,
    MAX_MATCH_SEGMENTS,
    MAX_TOPIC_BYTES,
    MAX_TOPIC_SEGMENTS,
    TOOL_DESCRIBE,
    TOOL_EXECUTE,
    TOOL_REQUEST,
    TOOL_RESULT,
    covers,
    has_valid_segments,
    is_tool_answer,
    is_tool_name,
    matches_dispatch,
    reads_all_tools,
    subscription_problem,
    tool_topic,
    topic_problem,
    user_invocable,
)
from aos_runtime.errors import InvalidInput

TABLE = json.loads((Path(__file__).parents[2] / "golden/topics/matchers.json").read_text("utf-8"))

PROBLEMS = {
    None: None,
    "long": f"topic is longer than {MAX_TOPIC_BYTES} bytes",
    "empty": "topic is empty",
    "segment": "topic has an empty segment",
    "deep": f"topic has more than {MAX_TOPIC_SEGMENTS} segments",
    "trailing": "a runtime subscription may hold one `*`, as its last segment only",
    "whole": "`*` stands for whole segments, so it cannot be part of one",
}

SEGMENT = st.sampled_from(["a", "b", "*"])
PATTERN = st.lists(SEGMENT, min_size=1, max_size=6).map(".".join)
TOPIC = st.lists(st.sampled_from(["a", "b"]), min_size=1, max_size=6).map(".".join)
ANY_TEXT = st.one_of(st.text(max_size=40), st.text(alphabet="a.*", max_size=20))


@pytest.mark.parametrize("row", TABLE["matchers"], ids=lambda row: f"{row['pattern']} {row['topic']}")
def test_truth_table_of_the_matchers(row: dict[str, object]) -> None:
    pattern, topic = str(row["pattern"]), str(row["topic"])
    found = {"dispatch": matches_dispatch(pattern, topic), "covers": covers(pattern, topic)}
    assert found == {"dispatch": row["dispatch"], "covers": row["covers"]}


@pytest.mark.parametrize("row", TABLE["subscription_gate"], ids=lambda row: row["pattern"][:40])
def test_truth_table_of_the_subscription_gate(row: dict[str, str]) -> None:
    assert subscription_problem(row["pattern"]) == PROBLEMS[row["problem"]]


@pytest.mark.parametrize("row", TABLE["user_invocable"], ids=lambda row: row["topic"])
def test_truth_table_of_the_users_surfaces(row: dict[str, str]) -> None:
    assert user_invocable(row["topic"]) == row["surface"]


def test_the_topics_of_tools_and_commands() -> None:
    assert (TOOL_REQUEST, TOOL_EXECUTE, TOOL_RESULT, TOOL_DESCRIBE, COMMAND_RUN) == (
        "tool.v1.request.execute",
        "tool.v1.execute",
        "tool.v1.execute.result",
        "tool.v1.request.describe",
        "cli.v1.command.run",
    )


def test_the_published_bounds() -> None:
    assert (MAX_TOPIC_BYTES, MAX_TOPIC_SEGMENTS, MAX_MATCH_SEGMENTS) == (256, 8, 20)
    assert topic_problem("a" * 256) is None
    assert topic_problem("a" * 257) == PROBLEMS["long"]
    assert topic_problem(".".join("abcdefgh")) is None
    assert topic_problem(".".join("abcdefghi")) == PROBLEMS["deep"]


@pytest.mark.parametrize(
    ("topic", "is_answer"),
    [
        ("tool.v1.execute.result", True),
        ("tool.v1.execute.hello.result", True),
        ("tool.v1.execute.a.b.result", True),
        ("tool.v1.execute.hello", False),
        ("tool.v1.execute.hello.results", False),
        ("tool.v1.executes.hello.result", False),
        ("cli.v1.hello.result", False),
    ],
)
def test_where_a_tool_answers(topic: str, is_answer: bool) -> None:
    assert is_tool_answer(topic) is is_answer


def test_a_refused_tool_name_is_shown_80_characters_of() -> None:
    with pytest.raises(InvalidInput) as caught:
        tool_topic("x" * 81 + ".")
    assert caught.value.message == f"invalid tool name '{'x' * 80}'"
    assert caught.value.context == {"name": "x" * 80}


def test_a_topic_that_is_too_long_is_told_before_its_shape() -> None:
    assert topic_problem("." * 300) == PROBLEMS["long"]
    assert topic_problem("\ud800" * 90) == PROBLEMS["long"]


def test_of_several_problems_the_first_is_told() -> None:
    assert topic_problem("a..b.c.d.e.f.g.h.i") == PROBLEMS["segment"]
    assert subscription_problem("*.b.c.d.e.f.g.h.i") == PROBLEMS["deep"]


@pytest.mark.parametrize("segment", ["ä", "工具", " ", "A", "-", "a/b", "$x", "#", ">", "\x00", "\n", "😀"])
def test_a_segment_may_hold_any_character_but_a_dot(segment: str) -> None:
    topic = f"a.{segment}.c"
    assert topic_problem(topic) is None
    assert subscription_problem(topic) is None
    assert matches_dispatch("a.*.c", topic) and matches_dispatch(topic, topic)
    assert covers("a.*", topic) and covers(topic, topic)


@given(pattern=PATTERN, topic=TOPIC)
def test_dispatch_is_never_wider_than_delivery(pattern: str, topic: str) -> None:
    assert not matches_dispatch(pattern, topic) or covers(pattern, topic)


@given(pattern=PATTERN, topic=TOPIC)
def test_delivery_is_dispatch_of_the_pattern_stretched_to_the_topic(pattern: str, topic: str) -> None:
    missing = topic.count(".") - pattern.count(".")
    stretched = pattern + ".*" * missing if pattern.endswith(".*") and missing > 0 else pattern
    assert covers(pattern, topic) == matches_dispatch(stretched, topic)


@given(wide=PATTERN, narrow=PATTERN, topic=TOPIC)
def test_covers_is_monotone(wide: str, narrow: str, topic: str) -> None:
    """What a granted pattern covers, and only that, can be reached through a pattern that it covers."""
    if covers(wide, narrow) and covers(narrow, topic):
        assert covers(wide, topic)


@given(pattern=PATTERN)
def test_a_pattern_covers_itself(pattern: str) -> None:
    assert covers(pattern, pattern)
    assert matches_dispatch(pattern, pattern)


@given(pattern=ANY_TEXT, topic=ANY_TEXT)
def test_broken_text_matches_nothing(pattern: str, topic: str) -> None:
    if not has_valid_segments(pattern) or not has_valid_segments(topic):
        assert not matches_dispatch(pattern, topic)
        assert not covers(pattern, topic)


@given(topic=ANY_TEXT)
def test_segments_are_valid_iff_none_is_empty(topic: str) -> None:
    assert has_valid_segments(topic) == all(topic.split("."))


@given(pattern=ANY_TEXT)
def test_the_gate_lets_through_only_what_may_be_published_on(pattern: str) -> None:
    if subscription_problem(pattern) is None:
        assert topic_problem(pattern) is None
        assert pattern.count("*") <= 1


def test_nothing_deeper_than_the_bound_is_covered() -> None:
    deepest = ".".join(["s"] * MAX_MATCH_SEGMENTS)
    assert covers("s.*", deepest)
    assert not covers("s.*", f"{deepest}.s")
    assert covers(deepest, deepest)
    assert not covers(f"{deepest}.s", deepest)
    assert not covers(f"{deepest}.s", f"{deepest}.s")


@pytest.mark.parametrize("name", ["hello", "read_file", "a-b", "ns:tool", "naïve", "工具", "7"])
def test_tool_names_that_the_router_forwards(name: str) -> None:
    assert is_tool_name(name)
    assert user_invocable(tool_topic(name)) == "tool"


@pytest.mark.parametrize("name", ["", "result", "foo.bar", "a b", "a/b", "*", "a\n", "x" * 250])
def test_tool_names_that_the_router_refuses(name: str) -> None:
    assert not is_tool_name(name)
    with pytest.raises(InvalidInput) as caught:
        tool_topic(name)
    assert caught.value.code == "tool-name"


@pytest.mark.parametrize(
    ("pattern", "reads"),
    [
        ("tool.v1.request.execute", True),
        ("tool.v1.request.*", True),
        ("tool.v1.execute.*", True),
        ("tool.v1.execute.*.result", True),
        ("tool.v1.execute.result", True),
        ("tool.*", True),
        ("*.v1.execute.*", True),
        ("tool.v1.execute.search", False),
        ("tool.v1.execute.search.result", False),
        ("tool.v1.request.describe", False),
        ("tool.v1.response.describe.*", False),
        ("astrid.v1.*", False),
    ],
)
def test_who_reads_all_tool_calls(pattern: str, reads: bool) -> None:
    assert reads_all_tools(pattern) == reads
