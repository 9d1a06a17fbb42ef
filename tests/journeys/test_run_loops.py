"""Capsules with a run loop, built with the SDK, in a real daemon."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from tests.support.installation import Aos, is_alive, wait_until

pytestmark = pytest.mark.journey
STUMBLER = CapsuleName("stumbler")


def install(aos: Aos, archive: Path, *options: str) -> None:
    aos.run("capsule", "install", str(archive), "--approve-untrusted", *options)


def row(aos: Aos, name: str) -> dict[str, Any]:
    rows = aos.run("status", "--format", "json").json["daemon"]["capsules"]
    return next(one for one in rows if one["name"] == name)


def call(aos: Aos, tool: str, **arguments: object) -> str:
    answer = aos.run("tool", "call", tool, "--input", json.dumps(arguments), "--format", "json").json
    assert answer["is_error"] is False, answer
    return str(answer["content"]).strip('"')


def test_bus_16_a_run_loop_answers_messages_and_its_tool_is_listed_and_callable(
    aos: Aos, looper_capsule: Path, listener_capsule: Path
) -> None:
    aos.run("start")
    install(aos, looper_capsule)
    install(aos, listener_capsule)
    assert [call(aos, "ask", text=f"hello {number}") for number in range(3)] == [
        "hello 0",
        "hello 1",
        "hello 2",
    ]
    assert "loop_state" in [tool["name"] for tool in aos.run("tool", "list", "--format", "json").json]
    assert call(aos, "loop_state") == "echoed 3"
    wait_until(
        lambda: "tool loop_state of looper" in aos.run("audit", "tail").out, "the loop's call is on record"
    )
    assert aos.run("audit", "verify", "--json").json["intact"] is True
    facts = row(aos, "looper")
    assert (facts["state"], facts["run_loop"], facts["warnings"], facts["tools"]) == (
        "ready",
        True,
        [],
        ["loop_state"],
    )
    wait_until(lambda: "tick" in aos.run("logs", "looper").out, "the watchdog's tick")
    assert (
        'heard astrid.v1.lifecycle.capsule_loaded {"event":"capsule_loaded"' in aos.run("logs", "looper").out
    )
    install(aos, looper_capsule)
    assert call(aos, "loop_state") == "echoed 0", "an install replaces the loop"
    assert call(aos, "ask", text="again") == "again"
    aos.run("capsule", "remove", "looper")
    refused = aos.run("tool", "call", "loop_state", status=1)
    assert "loop_state" in refused.err
    started = time.monotonic()
    aos.run("stop")
    assert time.monotonic() - started < 8


def test_a_loop_that_computes_for_a_cancelled_call_is_interrupted_and_started_again(
    aos: Aos, looper_capsule: Path
) -> None:
    aos.run("start")
    install(aos, looper_capsule)
    assert call(aos, "loop_state") == "echoed 0"
    gave_up = aos.try_run("tool", "call", "loop_state", "spin:=true", "--timeout", "0.5")
    assert gave_up.status == 1 and "did not answer within 0.5 s" in gave_up.err
    wait_until(lambda: row(aos, "looper")["state"] != "ready", "it is interrupted", timeout_s=10)
    wait_until(lambda: row(aos, "looper")["state"] == "ready", "it is started again", timeout_s=20)
    assert call(aos, "loop_state") == "echoed 0"


def test_log_07_one_that_fails_before_it_is_ready_is_said_with_what_it_said(
    aos: Aos, stumbler_capsule: Path
) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=early")
    aos.run("start")
    facts = row(aos, "stumbler")
    assert facts["state"] == "failed"
    assert "exited before signaling ready" in facts["reason"]
    assert "stumbled before it was ready" in facts["reason"]
    log = aos.home.daemon_log.read_text(encoding="utf-8")
    lines = [one for one in log.splitlines() if "ERROR" in one and "'stumbler' 0.1.0" in one]
    assert len(lines) == 1 and "stumbled before it was ready" in lines[0], log
    assert "stumbled before it was ready" in aos.run("logs", "stumbler").out
    assert aos.run("status", "--check", status=1)


def test_one_that_never_signals_does_not_stop_the_boot(aos: Aos, stumbler_capsule: Path) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=mute")
    aos.run("start")
    assert "did not signal ready within 500ms" in row(aos, "stumbler")["reason"]
    assert row(aos, "router")["state"] == "ready"


def test_cmp_13_one_that_fails_when_it_is_ready_is_restarted_and_shown(
    aos: Aos, stumbler_capsule: Path
) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=panic")
    aos.run("start")
    facts = row(aos, "stumbler")
    assert facts["state"] == "restarting" and facts["restarts"] >= 1
    assert "stumbled in panic" in facts["reason"]
    wait_until(lambda: row(aos, "stumbler")["restarts"] >= 2, "the second restart")
    assert "stumbler is restarting" in aos.run("status").out


def test_a_spinning_loop_ends_soon_when_its_capsule_is_removed(aos: Aos, stumbler_capsule: Path) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=spin")
    aos.run("start")
    pid = aos.daemon_pid()
    assert pid is not None and is_spinning(pid)
    aos.run("capsule", "remove", "stumbler")
    wait_until(lambda: not is_spinning(pid), "the loop ends", timeout_s=8)


def is_spinning(pid: int) -> bool:
    """Whether the process took much of a processor for half a second."""
    before = cpu_s(pid)
    time.sleep(0.5)
    return cpu_s(pid) - before > 0.05


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_dmn_12_spinning_loops_end_with_the_daemon_within_its_bound(aos: Aos, stumbler_capsule: Path) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=spin")
    aos.run("start")
    assert row(aos, "stumbler")["state"] == "ready"
    assert row(aos, "router")["state"] == "ready", "a spinning loop leaves the daemon to the others"
    pid = aos.daemon_pid()
    assert pid is not None
    started = time.monotonic()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not is_alive(pid), "the daemon ends", timeout_s=10)
    assert time.monotonic() - started < 8
    assert not aos.home.socket.exists()


def test_a_new_version_that_does_not_become_ready_leaves_the_old_one_serving(
    aos: Aos, stumbler_capsule: Path
) -> None:
    install(aos, stumbler_capsule, "--var", "MODE=steady")
    aos.run("start")
    assert row(aos, "stumbler")["state"] == "ready"
    before = sorted(path for path in aos.home.generations(DEFAULT_PRINCIPAL, STUMBLER).iterdir())
    refused = aos.try_run(
        "capsule", "install", str(stumbler_capsule), "--approve-untrusted", "--var", "MODE=early"
    )
    assert refused.status == 1
    assert "exited before signaling ready" in refused.err
    assert "; the version that was installed before is back and serves on\n" in refused.err
    assert sorted(aos.home.generations(DEFAULT_PRINCIPAL, STUMBLER).iterdir()) == before
    for _ in range(2):
        facts = row(aos, "stumbler")
        assert (facts["state"], facts["warnings"]) == ("ready", [])
        aos.run("restart")
