"""What a refusal says: the rule, and the row that would allow it."""

from __future__ import annotations

import pytest

from aos_runtime.policy.denials import publish_denial, subscribe_denial, uplink_denial
from aos_runtime.policy.publish import IpcRefusal, publish_refusal, subscribe_refusal


@pytest.mark.parametrize(
    ("topic", "size", "line"),
    [
        (
            "a.b",
            1,
            'denied operation=publish topic="a.b" case=capability-denied rule="no [publish] row covers it" '
            'allow="[publish] \\"a.b\\" = { wit = \\"opaque\\" }"',
        ),
        (
            "a..b",
            1,
            'denied operation=publish topic="a..b" case=invalid-input rule="topic has an empty segment"',
        ),
        (
            "astrid.v1.approval.response.r1",
            1,
            'denied operation=publish topic="astrid.v1.approval.response.r1" case=capability-denied '
            'rule="the namespace is the kernel\'s own"',
        ),
        (
            "ok.v1",
            2_000_000,
            'denied operation=publish topic="ok.v1" case=invalid-input '
            'rule="the payload is no JSON of at most 1048576 bytes"',
        ),
    ],
)
def test_a_refused_publish(topic: str, size: int, line: str) -> None:
    patterns = ("ok.*", "astrid.*")
    case = publish_refusal(topic, patterns, size)
    assert case is not None
    assert publish_denial(topic, patterns, case).render() == line


def test_a_refused_subscription() -> None:
    refusal = subscribe_refusal("a.*", ["a.b"], 0)
    assert refusal is not None
    assert subscribe_denial("a.*", refusal).render(repeated=3) == (
        'denied operation=subscribe topic="a.*" case=capability-denied '
        'rule="no [subscribe] row of this capsule covers a.*" '
        'allow="[subscribe] \\"a.*\\" = { wit = \\"opaque\\" }" repeated=3'
    )
    malformed = subscribe_refusal("a.*.b", ["a.*"], 0)
    assert malformed is not None
    assert subscribe_denial("a.*.b", malformed).allow is None


def test_an_uplink_row() -> None:
    assert uplink_denial("a.b").case is IpcRefusal.CAPABILITY_DENIED
    assert 'allow="[capabilities] uplink = true"' in uplink_denial("a.b").render()


def test_a_topic_cannot_forge_a_field_or_a_line() -> None:
    topic = 'x" case=ok\n2026 ERROR ' + "y" * 1000
    line = publish_denial(topic, (), IpcRefusal.INVALID_INPUT).render()
    assert "\n" not in line
    assert 'topic="x\\" case=ok' in line
    assert len(line) < 500
