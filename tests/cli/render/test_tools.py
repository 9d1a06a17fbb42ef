"""aos_cli.render.tools."""

from __future__ import annotations

from typing import Any

import pytest

from aos_cli.render.tools import decode_content, decode_text, normal_schema, render_tool, render_tools

GREET: dict[str, Any] = {
    "name": "greet",
    "capsule": "hello",
    "description": "Greet someone.\nPolitely.",
    "input_schema": {
        "type": "object",
        "required": ["name", "tags"],
        "properties": {
            "name": {"type": "string", "description": "Who"},
            "tags": {"type": "array"},
            "loud": {"type": "boolean"},
            "mood": {"enum": ["glad", "sad"]},
        },
    },
    "mutable": True,
    "shadowed": ["other"],
}


@pytest.mark.parametrize("schema", [{"type": "object"}, {}, None, "nonsense"])
def test_bus_17_a_tool_without_arguments_has_properties(schema: object) -> None:
    assert normal_schema(schema) == {"type": "object", "properties": {}}


def test_a_schema_that_is_whole_stays() -> None:
    assert normal_schema(GREET["input_schema"]) == GREET["input_schema"]


def test_the_list_is_one_line_a_tool() -> None:
    evil = {"name": "e\x1b[2J", "capsule": "x", "description": "a\x07"}
    assert render_tools([GREET, evil], width=100) == (
        "TOOL      CAPSULE  DESCRIPTION\ngreet     hello    Greet someone.\ne\\x1b[2J  x        a\\x07"
    )


def test_the_page_of_a_tool() -> None:
    assert render_tool(GREET) == (
        "greet (hello)\n"
        "\n"
        "  Greet someone.\n"
        "  Politely.\n"
        "\n"
        "Changes things: yes\n"
        "Also offered, not used: other\n"
        "\n"
        "Arguments\n"
        "  name (string, required)  Who\n"
        "  tags (array, required)\n"
        "  loud (boolean, optional)\n"
        "  mood (one of glad, sad, optional)\n"
        "\n"
        "Example\n"
        "  aos tool call greet --arg name=... tags:='[]'"
    )


@pytest.mark.parametrize(
    ("content", "text", "value"),
    [
        ('"Hello, Ada!"', "Hello, Ada!", "Hello, Ada!"),
        ("plain", "plain", "plain"),
        ('{"a":1}', '{"a":1}', {"a": 1}),
        ("3", "3", 3),
        ('"unfinished', '"unfinished', '"unfinished'),
    ],
)
def test_one_json_string_is_decoded_once(content: str, text: str, value: object) -> None:
    assert decode_text(content) == text
    assert decode_content(content) == value
