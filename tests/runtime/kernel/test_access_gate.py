"""The access gate: on a user-invocable surface a capsule is called only for who was granted it."""

from __future__ import annotations

import pytest

from aos_runtime.names import CapsuleName
from aos_runtime.policy.access import Standing
from tests.support.kernels import ALICE, Bench, cause

TOPIC = "tool.v1.execute.greet"
AGENT = Standing(enabled=True, lists=True)
REFUSAL = (
    "principal 'alice' has no access to capsule 'greeter'; "
    "allow it with `aos agent modify alice --add-capsule greeter`"
)


class Gated(Bench):
    """A bench that remembers on which topics its greeter was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []


@pytest.fixture
def bench() -> Gated:
    made = Gated()
    made.capsule(
        "greeter",
        lambda call: made.calls.append(call.envelope.topic),
        subscribe={TOPIC: "greet", "greeter.v1.ping": "ping", "tool.v1.request.describe": "describe"},
    )
    made.lifecycle.load_all(ALICE)
    return made


def say(bench: Gated, topic: str) -> list[str]:
    bench.kernel.publish(topic, b"{}", None, "source", cause())
    bench.run()
    calls, bench.calls = bench.calls, []
    return list(calls)


def stand(bench: Bench, standing: Standing) -> None:
    bench.standings[ALICE] = standing
    bench.kernel.apply_standings()


def test_without_a_grant_the_capsule_is_not_called_and_the_log_says_what_would_allow_it(bench: Gated) -> None:
    stand(bench, AGENT)
    assert say(bench, TOPIC) == []
    assert ("_daemon", "warn", f"{TOPIC}: {REFUSAL}") in bench.journal.lines


def test_a_grant_is_in_force_with_the_next_message(bench: Gated) -> None:
    stand(bench, AGENT)
    assert say(bench, TOPIC) == []
    stand(bench, Standing(enabled=True, capsules=frozenset({"greeter"})))
    assert say(bench, TOPIC) == [TOPIC]
    stand(bench, Standing())
    assert say(bench, TOPIC) == []


def test_other_topics_are_not_gated_and_describing_takes_the_right_to_list(bench: Gated) -> None:
    stand(bench, AGENT)
    assert say(bench, "greeter.v1.ping") == ["greeter.v1.ping"]
    assert say(bench, "tool.v1.request.describe") == ["tool.v1.request.describe"]
    stand(bench, Standing(enabled=True))
    assert say(bench, "greeter.v1.ping") == ["greeter.v1.ping"]
    assert say(bench, "tool.v1.request.describe") == []


def test_command_verbs_are_gated_as_tools_are() -> None:
    bench = Gated()
    verb, execute = "cli.v1.command.run.greet", "cli.v1.command.execute"
    bench.capsule(
        "greeter",
        lambda call: bench.calls.append(call.envelope.topic),
        subscribe={verb: "run", execute: "execute"},
    )
    bench.lifecycle.load_all(ALICE)
    stand(bench, AGENT)
    assert (say(bench, verb), say(bench, execute)) == ([], [execute])
    stand(bench, Standing(enabled=True, capsules=frozenset({"greeter"})))
    assert say(bench, verb) == [verb]


@pytest.mark.parametrize("topic", ["tool.v1.request.describe", "llm.v1.request.describe"])
def test_both_describe_surfaces_are_gated_alike(topic: str) -> None:
    bench = Gated()
    bench.capsule(
        "greeter", lambda call: bench.calls.append(call.envelope.topic), subscribe={topic: "describe"}
    )
    bench.lifecycle.load_all(ALICE)
    for standing, called in (
        (Standing(enabled=True), []),
        (Standing(enabled=True, lists=True), [topic]),
        (Standing(enabled=True, uses_any=True), [topic]),
        (Standing(enabled=True, capsules=frozenset({"greeter"})), [topic]),
    ):
        stand(bench, standing)
        assert say(bench, topic) == called


def test_a_bundled_capsule_needs_no_grant() -> None:
    bench = Bench()
    calls: list[str] = []
    bench.capsule("hello", lambda call: calls.append(call.action), subscribe={TOPIC: "greet"}, bundled=True)
    bench.lifecycle.load_all(ALICE)
    stand(bench, AGENT)
    bench.kernel.publish(TOPIC, b"{}", None, "source", cause())
    bench.run()
    assert calls == ["greet"]


def test_a_guest_that_publishes_there_is_told_why(bench: Gated) -> None:
    answers: list[str | None] = []
    bench.capsule(
        "router",
        lambda call: answers.append(call.speak(TOPIC, b"{}")),
        subscribe={"router.v1.go": "go"},
        publish=["tool.v1.execute.*"],
    )
    bench.lifecycle.reload(ALICE, CapsuleName("router"))
    stand(bench, AGENT)
    bench.kernel.publish("router.v1.go", b"{}", None, "source", cause())
    bench.run()
    assert answers == [f"unknown:{REFUSAL}"]


def test_the_hook_hears_of_every_denied_message(bench: Gated) -> None:
    heard: list[tuple[str, str | None]] = []
    bench.kernel.on_access_denied = lambda capsule, envelope: heard.append((capsule, envelope.request_owner))
    stand(bench, AGENT)
    for _ in range(2):
        say(bench, TOPIC)
    assert heard == [("greeter", "owner-1")] * 2
