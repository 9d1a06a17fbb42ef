"""Refusals in the log: at once, and never a flood."""

from __future__ import annotations

from aos_runtime.kernel.denials import MAX_KINDS, QUIET_S, DenialLog
from aos_runtime.policy.denials import publish_denial
from aos_runtime.policy.publish import IpcRefusal


def test_the_first_is_a_line_and_the_flood_a_number() -> None:
    lines: list[str] = []
    now = [0.0]
    log = DenialLog(lines.append, clock=lambda: now[0])
    denial = publish_denial("a.b", (), IpcRefusal.CAPABILITY_DENIED)
    for _ in range(1000):
        log.note(denial)
    log.note(publish_denial("a.c", (), IpcRefusal.CAPABILITY_DENIED))
    assert len(lines) == 2
    now[0] = QUIET_S
    log.note(denial)
    assert lines[2] == f"{lines[0]} repeated=999"
    assert log.total == 1002


def test_topics_that_a_guest_makes_up_are_bounded() -> None:
    lines: list[str] = []
    log = DenialLog(lines.append, clock=lambda: 0.0)
    for number in range(MAX_KINDS * 3):
        log.note(publish_denial(f"a.{number}", (), IpcRefusal.CAPABILITY_DENIED))
    assert len(log._kinds) <= MAX_KINDS
