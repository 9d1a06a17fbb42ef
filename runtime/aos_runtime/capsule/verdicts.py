"""What every matcher says of one topic and one pattern, and why: for people, never on the path of a message.

The answers come from `topics` alone; this module only finds the words.  It knows no capsule, subscription or
principal.  Source: seed tools-as-an-ipc-convention, daemon-kernel.md 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from aos_runtime.capsule.topics import (
    MAX_MATCH_SEGMENTS,
    covers,
    has_valid_segments,
    matches_dispatch,
    subscription_problem,
    topic_problem,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One matcher's answer: whether it says yes, and the rule that decided, a sentence without a period."""

    matcher: str
    matches: bool
    why: str


def judge_match(topic: str, pattern: str) -> tuple[Verdict, ...]:
    """Delivery, publish ACL, subscribe ACL, dispatch and the runtime gate, in this order.

    For the subscribe ACL `topic` is read as the pattern that a guest asks for; the gate looks at `pattern`.
    """
    wide = covers(pattern, topic)
    why_wide = _why(pattern, topic, is_trailing_wide=True)
    gate = subscription_problem(pattern)
    publishable = topic_problem(topic)
    return (
        Verdict(matcher="delivery", matches=wide, why=why_wide),
        Verdict(
            matcher="publish-acl",
            matches=wide and publishable is None,
            why=publishable or why_wide,
        ),
        Verdict(matcher="subscribe-acl", matches=wide, why=why_wide),
        Verdict(
            matcher="dispatch",
            matches=matches_dispatch(pattern, topic),
            why=_why(pattern, topic, is_trailing_wide=False),
        ),
        Verdict(
            matcher="subscribe-gate",
            matches=gate is None and wide,
            why=gate
            or (why_wide if not wide else "the pattern may be subscribed to at run time, and matches"),
        ),
    )


def _why(pattern: str, topic: str, *, is_trailing_wide: bool) -> str:
    """The rule by which a matcher decides; with `is_trailing_wide` a last `*` takes one or more segments."""
    for name, text in (("pattern", pattern), ("topic", topic)):
        if not has_valid_segments(text):
            return f"the {name} is empty or has an empty segment, and matches nothing"
    wanted, given = pattern.split("."), topic.split(".")
    if is_trailing_wide and max(len(wanted), len(given)) > MAX_MATCH_SEGMENTS:
        return f"deeper than {MAX_MATCH_SEGMENTS} segments matches nothing"
    is_tail = is_trailing_wide and len(wanted) > 1 and wanted[-1] == "*"
    if is_tail and len(given) < len(wanted):
        return f"a last `*` takes one segment or more, and {_segments(given)} leave none for it"
    if not is_tail and len(wanted) != len(given):
        return f"the pattern has {_segments(wanted)} and the topic {_segments(given)}; `*` takes exactly one"
    differing = next(
        (
            place
            for place, (want, have) in enumerate(zip(wanted, given, strict=False))
            if want not in ("*", have)
        ),
        None,
    )
    if differing is not None:
        return f"segment {differing + 1} is `{given[differing]}`, and the pattern wants `{wanted[differing]}`"
    if is_tail:
        return f"the last `*` takes `{'.'.join(given[len(wanted) - 1 :])}`"
    return "every `*` takes one segment" if "*" in wanted else "the same words"


def _segments(parts: list[str]) -> str:
    return "1 segment" if len(parts) == 1 else f"{len(parts)} segments"
