"""aos_cli.tools.arguments: from what was typed to the object that the tool gets."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_cli.tools.arguments import build_arguments, check_arguments, coerce, read_input
from aos_runtime.errors import InvalidInput, NotFound

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "limit": {"type": ["integer", "null"]},
        "mode": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["name"],
}


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("name", "42", "42"),
        ("name", "a=b=c", "a=b=c"),
        ("name", "", ""),
        ("count", "-7", -7),
        ("ratio", "2", 2),
        ("ratio", "2.5", 2.5),
        ("deep", "True", True),
        ("tags", '["a"]', ["a"]),
        ("options", '{"a":1}', {"a": 1}),
        ("limit", "null", None),
        ("limit", "3", 3),
        ("mode", "null", None),
        ("mode", "fast", "fast"),
        ("undeclared", "5", "5"),
    ],
)
def test_a_pair_is_read_by_the_type_of_the_schema(key: str, text: str, value: object) -> None:
    found = build_arguments(SCHEMA, pairs=[f"{key}={text}"], json_pairs=[], whole=None)
    assert found == {key: value}
    assert type(found[key]) is type(value)


def test_json_pairs_win_over_pairs_and_both_over_the_whole() -> None:
    found = build_arguments(
        SCHEMA, pairs=["name=b", "count=2"], json_pairs=["count:=3"], whole='{"name":"a","deep":true}'
    )
    assert found == {"name": "b", "count": 3, "deep": True}


def test_everything_that_cannot_be_read_is_said_at_once() -> None:
    with pytest.raises(InvalidInput) as refused:
        build_arguments(
            SCHEMA, pairs=["count=many", "novalue", "deep=maybe"], json_pairs=["tags:=[", "x"], whole=None
        )
    assert [issue.message.partition(": Expecting")[0] for issue in refused.value.issues] == [
        "count: 'many' is not integer",
        "--arg 'novalue' is not key=value",
        "deep: 'maybe' is not boolean",
        "tags: not JSON",
        "'x' is not key:=json",
    ]


@pytest.mark.parametrize("text", ["[1]", "nonsense", '"text"'])
def test_the_whole_must_be_an_object(text: str) -> None:
    with pytest.raises(InvalidInput):
        build_arguments(SCHEMA, pairs=[], json_pairs=[], whole=text)


@pytest.mark.parametrize("text", ["inf", "nan", "1e999"])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(ValueError, match="is not number"):
        coerce(text, {"type": "number"})


@given(st.integers())
def test_integers_come_back(number: int) -> None:
    assert coerce(str(number), {"type": "integer"}) == number


@given(st.text())
def test_text_stays_text(text: str) -> None:
    assert coerce(text, {"type": "string"}) == text


def test_violations_are_all_listed_before_anything_is_sent() -> None:
    with pytest.raises(InvalidInput) as refused:
        check_arguments({"count": "x", "nam": "Ada"}, SCHEMA)
    assert [(issue.message, issue.hint) for issue in refused.value.issues] == [
        ("'name' is a required property", None),
        ("count: 'x' is not of type 'integer'", None),
        ("nam: the tool has no such argument", "did you mean `name`?"),
    ]


def test_what_fits_passes_and_so_does_everything_where_the_schema_is_broken() -> None:
    check_arguments({"name": "Ada", "limit": None, "anything": 1}, SCHEMA)
    check_arguments({"name": 1}, {"type": "no such type"})


def test_input_from_a_file_from_stdin_and_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"name": "Ada"}), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": 1}')))
    assert read_input(f"@{file}") == '{"name": "Ada"}'
    assert read_input("-") == '{"a": 1}'
    assert read_input("{}") == "{}"


def test_input_that_is_not_there_too_large_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_input(f"@{tmp_path / 'missing'}")
    file = tmp_path / "big"
    file.write_bytes(b" " * (1024 * 1024 + 1))
    with pytest.raises(InvalidInput, match="more than a message may hold"):
        read_input(f"@{file}")
    file.write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_input(f"@{file}")
