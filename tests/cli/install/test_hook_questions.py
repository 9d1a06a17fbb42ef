"""aos_cli.install.hook_questions: who answers an install hook, in which order, and what nobody answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from aos_cli.console import Console
from aos_cli.install.hook_questions import HookQuestions, parse_answers
from aos_runtime.errors import InvalidInput

CITY: dict[str, Any] = {"key": "city", "prompt": "Which\x1b[2J city?", "field_type": "Text"}
COLOR: dict[str, Any] = {"key": "color", "prompt": "Colour?", "field_type": {"Enum": ["red", "blue"]}}
TAGS: dict[str, Any] = {"key": "tags", "prompt": "Tags", "field_type": "Array"}
SECRET: dict[str, Any] = {"key": "api_key", "prompt": "Key", "field_type": "Secret"}


def questions(
    *, given: Mapping[str, str] | None = None, environ: Mapping[str, str] | None = None, asks: bool = False
) -> HookQuestions:
    return HookQuestions(Console(environ={}), given=given or {}, environ=environ or {}, interactive=asks)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a person types; every prompt takes the next."""
    lines: list[str] = []

    def ask(self: Console, question: str, hidden: bool = False, default: str | None = None) -> str:
        return lines.pop(0) or (default or "")

    monkeypatch.setattr(Console, "ask", ask)
    yield lines
    assert lines == []


def test_the_command_line_then_the_environment_then_the_default() -> None:
    both = questions(given={"city": "Rome"}, environ={"AOS_VAR_CITY": "Oslo"})
    assert both.answer("demo", CITY) == {"value": "Rome"}
    assert questions(environ={"AOS_VAR_CITY": "Oslo"}).answer("demo", CITY) == {"value": "Oslo"}
    assert questions(environ={"ASTRID_VAR_CITY": "Bern"}).answer("demo", CITY) == {"value": "Bern"}
    assert questions().answer("demo", {**CITY, "default": "Paris"}) == {"value": "Paris"}


def test_an_answer_that_no_question_asked_for_is_known() -> None:
    some = questions(given={"city": "Rome", "colour": "red"})
    assert some.unused == ("city", "colour")
    some.answer("demo", CITY)
    assert some.unused == ("colour",)


@pytest.mark.parametrize(
    ("text", "values"),
    [('["a","b"]', ["a", "b"]), ("[]", []), ("plain", ["plain"]), ("[1]", ["[1]"]), ("{", ["{"])],
)
def test_a_list_is_json_or_one_item(text: str, values: list[str]) -> None:
    assert questions(given={"tags": text}).answer("demo", TAGS) == {"values": values}


def test_abi_31_what_nobody_answers_is_told_with_the_way_to_supply() -> None:
    asked = questions()
    assert asked.problem("demo") is None
    assert asked.answer("demo", CITY) == {}
    assert asked.answer("demo", SECRET) == {}
    problem = asked.problem("demo")
    assert problem is not None
    assert (problem.code, problem.hint) == (
        "answer-missing",
        "pass --answer city=VALUE, or set AOS_VAR_CITY; nothing was changed",
    )
    assert [issue.message for issue in problem.issues] == ["city: Which\\x1b[2J city?", "api_key: Key"]


def test_a_person_answers(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = questions(asks=True)
    typed += ["Rome", "", "s3cret", "", "a", "b", "", "2", "red", "9", "blue"]
    assert asked.answer("demo", CITY) == {"value": "Rome"}
    assert asked.answer("demo", {**CITY, "default": "Oslo"}) == {"value": "Oslo"}
    assert asked.answer("demo", SECRET) == {"value": "s3cret"}
    assert asked.answer("demo", SECRET) == {}
    assert asked.answer("demo", TAGS) == {"values": ["a", "b"]}
    assert asked.answer("demo", COLOR) == {"value": "blue"}
    assert asked.answer("demo", COLOR) == {"value": "red"}
    assert asked.answer("demo", COLOR) == {"value": "blue"}
    assert asked.problem("demo") is None, "a person who says nothing has been asked"
    shown = capsys.readouterr().err
    assert "demo asks: Colour?\n  1) red\n  2) blue\n" in shown
    assert "s3cret" not in shown


def test_three_wrong_choices_are_a_refusal(typed: list[str]) -> None:
    typed += ["green", "0", "3"]
    assert questions(asks=True).answer("demo", COLOR) == {}


@pytest.mark.parametrize("words", [["city"], ["=x"], ["a=1", "a=2"]])
def test_answers_on_the_command_line_are_pairs(words: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_answers(words)
    assert refused.value.code == "answer-invalid"


def test_a_value_may_hold_anything() -> None:
    assert parse_answers(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
