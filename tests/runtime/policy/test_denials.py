"""What a refusal says: the rule, and the row that would allow it."""

from __future__ import annotations

import pytest

from aos_runtime.policy.denials import publish_denial, subscribe_denial, uplink_denial
from aos_runtime.policy.publish import (
    RESERVED_NAMESPACES,
    IpcRefusal,
    PublishGate,
    subscribe_refusal,
)


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
    case = PublishGate(patterns).check(topic, size)
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
    assert uplink_denial("a.b").render() == (
        'denied operation=publish-as topic="a.b" case=capability-denied '
        'rule="only an uplink speaks for others" allow="[capabilities] uplink = true"'
    )


def test_repeats_are_told_by_operation_topic_and_rule() -> None:
    denied = publish_denial("a.b", (), IpcRefusal.CAPABILITY_DENIED, "publish-as")
    assert denied.kind == ("publish-as", "a.b", "no [publish] row covers it")


def test_of_what_a_guest_named_300_characters_are_logged() -> None:
    line = publish_denial("y" * 301, (), IpcRefusal.INVALID_INPUT).render()
    assert f'topic="{"y" * 300}" ' in line


@pytest.mark.parametrize("namespace", RESERVED_NAMESPACES)
def test_a_namespace_of_the_kernel_is_told_as_such(namespace: str) -> None:
    for topic in (namespace, f"{namespace}.x"):
        denied = publish_denial(topic, ("astrid.*",), IpcRefusal.CAPABILITY_DENIED)
        assert (denied.rule, denied.allow) == ("the namespace is the kernel's own", None)


def test_a_topic_cannot_forge_a_field_or_a_line() -> None:
    topic = 'x" case=ok\n2026 ERROR ' + "y" * 1000
    line = publish_denial(topic, (), IpcRefusal.INVALID_INPUT).render()
    assert "\n" not in line
    assert 'topic="x\\" case=ok' in line
    assert len(line) < 500
