"""Subscriptions of a real capsule built with the SDK, through a real daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.installation import Aos

pytestmark = pytest.mark.journey
ID = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def listener(aos: Aos, listener_capsule: Path) -> Aos:
    aos.run("start")
    aos.run("capsule", "install", str(listener_capsule), "--approve-untrusted")
    return aos


def call(aos: Aos, tool: str, **arguments: object) -> str:
    answer = aos.run("tool", "call", tool, "--input", json.dumps(arguments), "--format", "json").json
    assert answer["is_error"] is False, answer
    content = json.loads(answer["content"]) if answer["content"][:1] == '"' else answer["content"]
    return str(content)


def test_bus_02_patterns_are_refused_at_the_call_and_the_log_names_the_row(listener: Aos) -> None:
    for pattern in ("burst.*.b", "*.x", "burst..b", "burst.*.*", "burst.b.c.d.e.f.g.h.i"):
        assert "InvalidInput" in call(listener, "try_subscribe", pattern=pattern), pattern
    assert "CapabilityDenied" in call(listener, "try_subscribe", pattern="*")
    assert call(listener, "try_subscribe", pattern="burst.v1.*") == "subscribed, 0 messages"
    assert call(listener, "hold", count=128) == "128 held"
    refused = call(listener, "hold", count=129)
    assert refused.startswith("129: ") and "Quota" in refused
    assert call(listener, "hold", count=128) == "128 held", "handles do not outlive the call"
    log = listener.run("logs", "listener").out
    assert 'denied operation=subscribe topic="*" case=capability-denied' in log
    assert 'allow="[subscribe]' in log


def test_bus_07_a_burst_arrives_whole_and_in_order(listener: Aos) -> None:
    assert json.loads(call(listener, "burst", count=50)) == list(range(50))
    assert json.loads(call(listener, "burst", count=1000)) == list(range(1000))


def test_a_delivery_that_nobody_takes_is_told_to_its_publisher(listener: Aos) -> None:
    receipt = json.loads(call(listener, "deliver", topic="burst.v1.nobody", id=ID))
    assert receipt == {"delivery_id": ID, "request_topic": "burst.v1.nobody", "reason": "no-consumer"}
    assert "InvalidInput" in call(listener, "deliver", topic="burst.v1.nobody", id="0" * 32)


def test_waiting_for_an_answer_that_never_comes_ends_and_disturbs_nobody(listener: Aos) -> None:
    waiting = listener.start("tool", "call", "ask", "--arg", "text=hello")
    assert json.loads(call(listener, "burst", count=3)) == [0, 1, 2]
    out, err = waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    assert "no reply" in out + err
