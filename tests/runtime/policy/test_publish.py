from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy import publish
from aos_runtime.policy.publish import (
    MAX_CACHED_TOPICS,
    MAX_PAYLOAD_BYTES,
    MAX_SUBSCRIPTIONS,
    OTHERS_RECEIPTS,
    RESERVED_NAMESPACES,
    IpcRefusal,
    PublishGate,
    Refusal,
    is_refused_early,
    subscribe_refusal,
)

ROUTER = ("tool.v1.execute.*", "tool.v1.execute.result")
DENIED, INVALID = IpcRefusal.CAPABILITY_DENIED, IpcRefusal.INVALID_INPUT


@pytest.mark.parametrize(
    ("topic", "patterns", "size", "refusal"),
    [
        ("tool.v1.execute.hello", ROUTER, 10, None),
        ("tool.v1.execute.result", ROUTER, 10, None),
        ("tool.v1.execute.x.result", ROUTER, 10, None),
        ("tool.v1.execute", ROUTER, 10, DENIED),
        ("agent.v1.response", ROUTER, 10, DENIED),
        ("tool.v1.execute.hello", (), 10, DENIED),
        ("a.b", ("*",), 10, DENIED),
        ("a", ("*",), 10, None),
        ("a.b.c", ("a.*.c",), 10, None),
        ("a.b", ("a.*",), MAX_PAYLOAD_BYTES, None),
        ("a.b", ("a.*",), MAX_PAYLOAD_BYTES + 1, INVALID),
        ("b.b", ("a.*",), MAX_PAYLOAD_BYTES + 1, DENIED),
        ("a..b", ("a.*",), 10, INVALID),
        ("b..b", ("a.*",), 10, INVALID),
        (".".join("bbbbbbbbb"), ("a.*",), 10, INVALID),
        ("b." + "b" * 255, ("a.*",), 10, INVALID),
        ("", ("*",), 10, INVALID),
        (".".join("abcdefgh"), ("a.*",), 10, None),
        (".".join("abcdefghi"), ("a.*",), 10, INVALID),
        ("a." + "b" * 254, ("a.*",), 10, None),
        ("a." + "b" * 255, ("a.*",), 10, INVALID),
        ("a." + "ü" * 128, ("a.*",), 10, INVALID),
        ("astrid.v1.delivery.failure.x.y", ("astrid.*",), 10, DENIED),
        ("astrid.v1.delivery.failure" + ".x" * 300, ("astrid.*",), 10, DENIED),
        ("astrid.v1.response.failure.x", ("astrid.*",), 10, DENIED),
        ("astrid.v1.response.failures", ("astrid.*",), 10, None),
        ("astrid.v1.response.status.c", ("astrid.v1.response.*",), 10, None),
    ],
)
def test_the_order_of_checks(
    topic: str, patterns: tuple[str, ...], size: int, refusal: IpcRefusal | None
) -> None:
    gate = PublishGate(patterns)
    assert [gate.check(topic, size), gate.check(topic, size)] == [refusal, refusal]


@pytest.mark.parametrize(
    "namespace",
    [
        "astrid.v1.delivery.failure",
        "astrid.v1.response.failure",
        "astrid.v1.approval",
        "astrid.v1.elicit",
        "astrid.v1.grant",
    ],
)
def test_no_guest_publishes_where_the_kernel_reports_and_asks(namespace: str) -> None:
    assert RESERVED_NAMESPACES.count(namespace) == 1
    for topic in (namespace, f"{namespace}.x"):
        assert PublishGate(("astrid.*", topic)).check(topic, 1) is DENIED
        assert is_refused_early(topic)
    assert PublishGate(("astrid.*",)).check(f"{namespace}x", 1) is None
    assert not is_refused_early(f"{namespace}x")


@pytest.mark.parametrize(
    ("topic", "is_early"),
    [
        ("a" * 256, False),
        ("a" * 257, True),
        ("ü" * 128, False),
        ("ü" * 129, True),
        ("\ud800", False),
        ("", False),
    ],
)
def test_a_topic_that_is_too_long_is_refused_before_the_rate(topic: str, is_early: bool) -> None:
    assert is_refused_early(topic) is is_early


def test_the_published_limits() -> None:
    assert (MAX_PAYLOAD_BYTES, MAX_SUBSCRIPTIONS, MAX_CACHED_TOPICS) == (1_048_576, 128, 4096)


def test_the_cases_are_the_wit_names() -> None:
    assert [case.value for case in IpcRefusal] == [
        "capability-denied",
        "invalid-input",
        "rate-limited",
        "quota",
    ]
    assert str(IpcRefusal.QUOTA) == "quota"


def test_the_gate_remembers_in_a_bounded_table(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = PublishGate(("a.*",))
    for number in range(4096):
        assert gate.check(f"a.{number}", 1) is None
    assert len(gate._known) == 4096
    assert gate.check("a.one-more", 1) is None
    assert len(gate._known) == 1
    monkeypatch.setattr(publish, "topic_refusal", None)
    assert gate.check("a.one-more", 1) is None


topics = st.lists(st.sampled_from(["a", "b", "*", ""]), max_size=9).map(".".join)


@given(topics, st.lists(topics, max_size=3), st.integers(0, 2 * MAX_PAYLOAD_BYTES))
def test_the_gate_always_agrees_with_the_rule(topic: str, patterns: list[str], size: int) -> None:
    gate = PublishGate(patterns)
    gate.check(topic, 0)
    assert gate.check(topic, size) == PublishGate(patterns).check(topic, size)


MIDDLE = "a runtime subscription may hold one `*`, as its last segment only"


@pytest.mark.parametrize(
    ("pattern", "refusal"),
    [
        ("a.b.*", None),
        ("a.b.c", None),
        ("a.*.b", Refusal(INVALID, MIDDLE)),
        ("a.*.*", Refusal(INVALID, MIDDLE)),
        ("a..b", Refusal(INVALID, "topic has an empty segment")),
        ("a.b.c.d.e.f.g.h.i", Refusal(INVALID, "topic has more than 8 segments")),
        ("a." + "b" * 255, Refusal(INVALID, "topic is longer than 256 bytes")),
        ("*", Refusal(DENIED, "no [subscribe] row of this capsule covers *")),
        ("b.c", Refusal(DENIED, "no [subscribe] row of this capsule covers b.c")),
    ],
)
def test_bus_02_a_subscription_is_refused_at_the_call_with_its_rule(
    pattern: str, refusal: Refusal | None
) -> None:
    assert subscribe_refusal(pattern, ("a.*",), 0) == refusal


def test_without_rows_nothing_is_said_and_nothing_heard() -> None:
    for topic in ("a", "a.b", "tool.v1.execute.hello", "tool.v1.execute.hello.result"):
        assert PublishGate(()).check(topic, 2) is DENIED
        refusal = subscribe_refusal(topic, (), 0)
        assert refusal == Refusal(DENIED, f"no [subscribe] row of this capsule covers {topic}")


def test_a_capsule_subscribes_to_its_own_receipts_only() -> None:
    rows = ("astrid.*",)
    assert subscribe_refusal("astrid.v1.delivery.failure.*", rows, 0) is None
    assert subscribe_refusal(f"astrid.v1.delivery.failure.{'a' * 32}", rows, 0) is None
    for pattern in ("x.*", f"{'a' * 32}.{'b' * 32}", "a.b.c"):
        refusal = subscribe_refusal(f"astrid.v1.delivery.failure.{pattern}", rows, 0)
        assert refusal == Refusal(DENIED, OTHERS_RECEIPTS)


def test_bus_02_a_leading_star_needs_a_row_that_covers_it() -> None:
    assert subscribe_refusal("*.x", ("*.x",), 0) == Refusal(INVALID, MIDDLE)


def test_bus_02_the_129th_subscription_is_refused() -> None:
    assert subscribe_refusal("a.b", ("a.*",), 127) is None
    quota = Refusal(IpcRefusal.QUOTA, "a capsule holds at most 128 subscriptions")
    assert subscribe_refusal("a.b", ("a.*",), 128) == quota
