"""Topics: their shape, their bounds and every matcher over them.

All four questions that a `*` can ask are answered here and nowhere else, and one truth table drives all of
them (tests/golden/topics/matchers.json).  This room knows no capsule, subscription or principal.
Source: seed capsule-forge section 10, seed tools-as-an-ipc-convention, daemon-kernel.md 4.
"""

from __future__ import annotations

from typing import Literal

from aos_runtime.errors import InvalidInput

MAX_TOPIC_BYTES = 256
"""Longest topic or pattern that a guest or a client may publish on or subscribe to."""

MAX_TOPIC_SEGMENTS = 8
"""Deepest topic or pattern that a guest or a client may publish on or subscribe to."""

MAX_MATCH_SEGMENTS = 20
"""Deepest topic or pattern that delivery and ACL look at; anything deeper matches nothing."""

TOOL_EXECUTE = "tool.v1.execute"
TOOL_RESULT = "tool.v1.execute.result"
TOOL_REQUEST = "tool.v1.request.execute"
TOOL_DESCRIBE = "tool.v1.request.describe"
COMMAND_RUN = "cli.v1.command.run"
RESERVED_TOOL_NAME = "result"

_TOOL_TRAFFIC = ("tool.v1.request.execute", TOOL_RESULT, f"{TOOL_EXECUTE}.?", f"{TOOL_EXECUTE}.?.result")
"""Where every call passes; `?` is in no tool's name, so only a wildcard covers it."""

Surface = Literal["tool", "cli"]


def has_valid_segments(topic: str) -> bool:
    """Whether `topic` is non-empty and has no empty segment."""
    return bool(topic) and topic[0] != "." and topic[-1] != "." and ".." not in topic


def topic_problem(topic: str) -> str | None:
    """What forbids publishing on `topic`, in order: length, segments, depth; None where nothing does."""
    if len(topic.encode("utf-8", "surrogatepass")) > MAX_TOPIC_BYTES:
        return f"topic is longer than {MAX_TOPIC_BYTES} bytes"
    if not topic:
        return "topic is empty"
    if not has_valid_segments(topic):
        return "topic has an empty segment"
    if topic.count(".") >= MAX_TOPIC_SEGMENTS:
        return f"topic has more than {MAX_TOPIC_SEGMENTS} segments"
    return None


def matches_dispatch(pattern: str, topic: str) -> bool:
    """Whether a handler row `pattern` is called for `topic`: equal depth, `*` is exactly one segment."""
    if not has_valid_segments(topic):  # a pattern with an empty segment is then unequal of itself
        return False
    wanted, given = pattern.split("."), topic.split(".")
    return len(wanted) == len(given) and _segments_match(wanted, given)


def covers(pattern: str, topic: str) -> bool:
    """Whether `pattern` authorises and receives `topic`: a trailing `.*` is one or more segments.

    `*` elsewhere, and a bare `*`, is exactly one segment.  For the subscribe ACL `topic` is the pattern that
    was asked for, read as a topic.  Monotone: what a covered pattern covers is covered too.
    """
    if not has_valid_segments(topic):
        return False
    wanted, given = pattern.split("."), topic.split(".")
    if len(given) > MAX_MATCH_SEGMENTS or len(wanted) > MAX_MATCH_SEGMENTS:
        return False
    if len(wanted) > 1 and wanted[-1] == "*":
        return len(given) >= len(wanted) and _segments_match(wanted[:-1], given)
    return len(wanted) == len(given) and _segments_match(wanted, given)


def subscription_problem(pattern: str) -> str | None:
    """What forbids a runtime subscription to `pattern`: a topic's limits, or any `*` but one trailing one."""
    problem = topic_problem(pattern)
    if problem is not None:
        return problem
    *leading, last = pattern.split(".")
    if any("*" in segment for segment in leading):
        return "a runtime subscription may hold one `*`, as its last segment only"
    if "*" in last and last != "*":
        return "`*` stands for whole segments, so it cannot be part of one"
    return None


def user_invocable(topic: str) -> Surface | None:
    """Which surface of the user `topic` belongs to: a tool's execute topic or a capsule's command verb."""
    head, _, name = topic.rpartition(".")
    if not name:
        return None
    if head == TOOL_EXECUTE and name != RESERVED_TOOL_NAME:
        return "tool"
    return "cli" if head == COMMAND_RUN else None


def is_tool_answer(topic: str) -> bool:
    """Whether a tool's handler answers on `topic`."""
    return topic == TOOL_RESULT or (topic.startswith(f"{TOOL_EXECUTE}.") and topic.endswith(".result"))


def is_tool_name(name: str) -> bool:
    """Whether the router forwards `name`: Unicode alphanumerics, `-`, `_`, `:`; never the word `result`."""
    return (
        name != RESERVED_TOOL_NAME
        and all(char.isalnum() or char in "-_:" for char in name)
        and topic_problem(f"{TOOL_EXECUTE}.{name}.{RESERVED_TOOL_NAME}") is None
    )


def tool_topic(name: str) -> str:
    """The execute topic of tool `name`.  InvalidInput `tool-name` where the router would refuse the name."""
    if not is_tool_name(name):
        raise InvalidInput(
            "tool-name",
            f"invalid tool name {name[:80]!r}",
            hint="use letters, digits, hyphens, underscores and colons; `result` is reserved",
            name=name[:80],
        )
    return f"{TOOL_EXECUTE}.{name}"


def reads_all_tools(pattern: str) -> bool:
    """Whether a capsule that subscribes to `pattern` sees the tool calls or results of other capsules."""
    return any(covers(pattern, topic) for topic in _TOOL_TRAFFIC)


def _segments_match(wanted: list[str], given: list[str]) -> bool:
    return all(want in ("*", have) for want, have in zip(wanted, given, strict=False))
