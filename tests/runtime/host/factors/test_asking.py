"""astrid:approval and astrid:elicit: their functions on plain values."""

from __future__ import annotations

from typing import Any

import pytest

from aos_runtime.errors import Corrupt
from aos_runtime.host import Case, Err
from aos_runtime.host.context import ElicitQuestion
from aos_runtime.host.factors import approval, elicit
from aos_runtime.host.waiting import WaitGate
from tests.support.guests import Recorder, envelope_from

DEED = {"action": "git push", "target-resource": "origin"}
QUESTION: dict[str, Any] = {
    "kind": "text",
    "key": " city ",
    "description": "Which city?",
    "options": None,
    "default-value": None,
}


def request(recorder: Recorder, **ports: Any) -> Any:
    return approval.FUNCTIONS["request-approval"].run(recorder.context(**ports), DEED)


def ask(recorder: Recorder, answer: Any, **question: Any) -> Any:
    port = None if answer is None else lambda _question: answer
    return elicit.FUNCTIONS["elicit"].run(recorder.context(elicit=port), {**QUESTION, **question})


def test_an_approval_is_asked_through_the_port(recorder: Recorder) -> None:
    asked: list[object] = []
    current = envelope_from("default")

    def port(*arguments: object) -> str:
        asked.append(arguments)
        return "allowance"

    assert request(recorder, request_approval=port, current=current) == {"decision": "allowance"}
    assert asked == [(current, "git push", "origin")]
    assert request(recorder, request_approval=lambda *_: Err("timeout")) == Err("timeout")


def test_without_a_port_everything_is_denied(recorder: Recorder) -> None:
    assert request(recorder) == {"decision": "denied"}


def test_one_gate_over_all_that_wait(recorder: Recorder) -> None:
    gate = WaitGate(limit=1)

    def port(*_arguments: object) -> str:
        return str(request(recorder, request_approval=lambda *_: "approved", gate=gate).payload)

    assert request(recorder, request_approval=port, gate=gate) == {"decision": "too many guests wait at once"}
    assert gate.count == 0


def test_abi_31_only_a_hook_may_elicit(recorder: Recorder) -> None:
    assert ask(recorder, None) == Err("not-in-lifecycle")


@pytest.mark.parametrize(
    ("kind", "answer", "result"),
    [
        ("text", "Rome", Case("value", "Rome")),
        ("array", ("a", "b"), Case("values", ["a", "b"])),
        ("secret", "", Case("secret-stored")),
        ("text", Err("cancelled"), Err("cancelled")),
        ("secret", Err("timeout"), Err("timeout")),
    ],
)
def test_the_forms_of_an_answer(recorder: Recorder, kind: str, answer: Any, result: Any) -> None:
    assert ask(recorder, answer, kind=kind) == result


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": " "},
        {"key": "k" * 129},
        {"description": "d" * 4097},
        {"kind": "secret", "default-value": "x"},
        {"kind": "array", "default-value": "x"},
        {"kind": "select"},
        {"kind": "select", "options": []},
        {"kind": "select", "options": ["a", ""]},
        {"kind": "select", "options": ["a"], "default-value": "b"},
        {"kind": "select", "options": ["a"] * 257},
    ],
)
def test_what_cannot_be_asked_is_invalid(recorder: Recorder, wrong: dict[str, Any]) -> None:
    assert ask(recorder, "a", **wrong) == Err("invalid-input")


def test_a_valid_choice_reaches_the_port(recorder: Recorder) -> None:
    asked: list[ElicitQuestion] = []
    context = recorder.context(elicit=lambda question: asked.append(question) or "b")
    choice = {**QUESTION, "kind": "select", "options": ["a", "b"], "default-value": "a"}
    assert elicit.FUNCTIONS["elicit"].run(context, choice) == Case("value", "b")
    assert asked == [ElicitQuestion("select", "city", "Which city?", ("a", "b"), "a")]


def test_has_secret(recorder: Recorder) -> None:
    run = elicit.FUNCTIONS["has-secret"].run
    assert run(recorder.context(), "k") is False
    assert run(recorder.context(has_secret={"k": True}.__contains__), "k") is True

    def broken(_key: str) -> bool:
        raise Corrupt("x-damaged", "it is damaged", hint="")

    assert run(recorder.context(has_secret=broken), "k") == Err("store-unavailable")
