"""From an empty folder to a tool that answers: the loop that everything else serves, on real things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.installation import Aos

pytestmark = pytest.mark.journey


def install(aos: Aos, *archives: Path) -> None:
    """The archives were built under another home's key: foreign here, so they are approved by name."""
    for archive in archives:
        aos.run("capsule", "install", str(archive), "--approve-untrusted")


def call(aos: Aos, tool: str, **arguments: object) -> dict[str, object]:
    answer = aos.run("tool", "call", tool, "--input", json.dumps(arguments), "--format", "json").json
    assert isinstance(answer, dict)
    return answer


def test_the_loop_with_no_daemon_before_the_call(aos: Aos, hello_capsule: Path) -> None:
    install(aos, hello_capsule)
    listed = aos.run("capsule", "list", "--format", "json").json
    assert [row["name"] for row in listed if row["name"] == "hello"] == ["hello"]
    assert aos.daemon_pid() is None, "install and list start no daemon"

    answered = aos.run("tool", "call", "hello", "--arg", "name=Ada")
    assert answered.out == "Hello, Ada!\n"
    assert "ephemeral daemon" in answered.err, "an automatic start is said"

    logged = aos.run("logs", "hello")
    assert "greeting Ada" in logged.out


def test_the_loop_beside_a_running_daemon(aos: Aos, hello_capsule: Path) -> None:
    aos.run("start")
    install(aos, hello_capsule)
    status = aos.run("status", "--format", "json").json
    states = {row["name"]: row["state"] for row in status["daemon"]["capsules"]}
    assert states["hello"] == "ready"
    assert states["router"] == "ready", "the router is bundled"

    assert call(aos, "hello", name="Grace")["content"] == "Hello, Grace!"
    after = {row["name"]: row for row in aos.run("status", "--format", "json").json["daemon"]["capsules"]}
    assert (after["hello"]["calls"], after["hello"]["errors"], after["hello"]["drops"]) == (1, 0, 0)

    aos.run("stop")
    assert aos.daemon_pid() is None
    assert not aos.home.socket.exists()


def test_what_tools_there_are_and_what_they_take(aos: Aos, hello_capsule: Path) -> None:
    aos.run("start")
    install(aos, hello_capsule)
    tools = {row["name"]: row for row in aos.run("tool", "list", "--format", "json").json}
    assert tools["hello"]["capsule"] == "hello"
    schema = aos.run("tool", "show", "hello", "--format", "json").json["input_schema"]
    assert schema["required"] == ["name"]
    refused = aos.run("tool", "call", "hello", "--arg", "nom=Ada", status=1)
    assert "name" in refused.err
    unknown = aos.run("tool", "call", "helo", "--arg", "name=Ada", status=1)
    assert "hello" in unknown.err, "the nearest name is said"


def test_a_tool_that_fails_says_so_and_exits_1(aos: Aos, sampler_capsule: Path) -> None:
    install(aos, sampler_capsule)
    refused = aos.run("tool", "call", "refuse", "--arg", "text=not today", status=1)
    assert "not today" in refused.out + refused.err


def test_a_panic_names_its_line_in_both_logs_and_the_next_call_is_served(
    aos: Aos, sampler_capsule: Path
) -> None:
    aos.run("start")
    install(aos, sampler_capsule)
    aos.run("tool", "call", "explode", "--arg", "text=\x1b[31mred", status=1)
    own = aos.run("logs", "sampler").out
    assert "src/lib.rs:" in own
    assert "exploded" in own
    assert "\x1b" not in own, "guest text reaches no terminal unescaped"
    assert "src/lib.rs:" in aos.home.daemon_log.read_text(encoding="utf-8")
    assert call(aos, "note", text="still here")["content"] in ("still here", '"still here"')


def test_state_survives_a_restart_and_a_kill(aos: Aos, sampler_capsule: Path) -> None:
    aos.run("start")
    install(aos, sampler_capsule)
    assert [call(aos, "count")["content"] for _ in range(3)] == ["1", "2", "3"]
    aos.run("restart")
    assert call(aos, "count")["content"] == "4"
    aos.kill_daemon()
    assert call(aos, "count")["content"] == "5", (
        "the first command that needs a daemon heals what the kill left"
    )


def test_a_reinstall_replaces_and_keeps_the_state(aos: Aos, sampler_capsule: Path) -> None:
    aos.run("start")
    install(aos, sampler_capsule)
    call(aos, "count")
    install(aos, sampler_capsule)
    assert call(aos, "count")["content"] == "2"
    names = [row["name"] for row in aos.run("capsule", "list", "--format", "json").json]
    assert names.count("sampler") == 1


def test_two_capsules_with_one_tool_are_one_provider(
    aos: Aos, hello_capsule: Path, twin_capsule: Path
) -> None:
    aos.run("start")
    install(aos, hello_capsule, twin_capsule)
    provider = str(call(aos, "hello", name="Ada")["capsule"])
    assert provider in {"hello", "twin"}
    loser = ({"hello", "twin"} - {provider}).pop()
    rows = {row["name"]: row for row in aos.run("status", "--format", "json").json["daemon"]["capsules"]}
    assert rows[loser]["shadowed"], "who lost is said"
    assert rows[loser]["calls"] == 0 and rows[provider]["calls"] == 1
    aos.run("restart")
    assert call(aos, "hello", name="Ada")["capsule"] == provider, "the order of loading does not decide"
    aos.run("capsule", "remove", provider)
    assert call(aos, "hello", name="Ada")["capsule"] == loser


def test_a_removed_capsule_answers_no_more(aos: Aos, hello_capsule: Path) -> None:
    aos.run("start")
    install(aos, hello_capsule)
    aos.run("capsule", "remove", "hello")
    refused = aos.run("tool", "call", "hello", "--arg", "name=Ada", status=1)
    assert "hello" in refused.err
    assert "hello" not in [row["name"] for row in aos.run("capsule", "list", "--format", "json").json]


def test_dmn_14_answers_of_70_kb_and_900_kb_come_whole(aos: Aos, sampler_capsule: Path) -> None:
    aos.run("start")
    install(aos, sampler_capsule)
    for size in (70_000, 900_000):
        answer = aos.run("tool", "call", "repeat", "--input", json.dumps({"bytes": size}))
        assert len(answer.out.strip()) == size
