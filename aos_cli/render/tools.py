"""Tools as tables and pages, answers as text.  Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from aos_cli.console import safe
from aos_cli.render.table import Column, one_line, render_table

_COLUMNS = (
    Column(title="TOOL"),
    Column(title="CAPSULE"),
    Column(title="DESCRIPTION", flexible=True),
)

_CALL_COLUMNS = (
    Column(title="CALL ID"),
    Column(title="TOOL"),
    Column(title="CAPSULE", flexible=True),
    Column(title="RUNNING", align_right=True),
    Column(title="TIMEOUT", align_right=True),
)


def normal_schema(schema: object) -> dict[str, Any]:
    """An input schema as strict clients take it: an object always has `properties` (case BUS-17)."""
    found: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
    found.setdefault("type", "object")
    if found["type"] == "object":
        found.setdefault("properties", {})
    return found


def render_tools(tools: Sequence[Mapping[str, Any]], *, width: int | None) -> str:
    """One line per tool; what another capsule shadows is said behind the capsule."""
    rows = [
        [_text(tool, "name"), _text(tool, "capsule"), _summary(_text(tool, "description"))] for tool in tools
    ]
    return render_table(_COLUMNS, rows, width=width)


def render_calls(calls: Sequence[Mapping[str, Any]], *, width: int | None) -> str:
    """One line per running call."""
    rows = [
        [
            _text(call, "call_id"),
            _text(call, "tool"),
            _text(call, "capsule"),
            _duration(call.get("running_ms")),
            _duration(_milliseconds(call.get("timeout_s"))),
        ]
        for call in calls
    ]
    return render_table(_CALL_COLUMNS, rows, width=width)


def _milliseconds(seconds: object) -> object:
    return seconds * 1000 if isinstance(seconds, (int, float)) else None


def _duration(milliseconds: object) -> str:
    return f"{milliseconds / 1000:.1f} s" if isinstance(milliseconds, (int, float)) else ""


def _text(tool: Mapping[str, Any], key: str) -> str:
    value = tool.get(key)
    return safe(one_line(value)) if isinstance(value, str) else ""


def _summary(description: str) -> str:
    head, mark, _ = description.partition(". ")
    return head + "." if mark else head


def render_tool(tool: Mapping[str, Any]) -> str:
    """The page of one tool: what it does, who provides it, each argument, an example call."""
    schema = normal_schema(tool.get("input_schema"))
    name = _text(tool, "name")
    lines = [f"{name} ({_text(tool, 'capsule')})", ""]
    description = tool.get("description")
    if isinstance(description, str) and description.strip():
        lines += [
            f"  {line}".rstrip() for line in safe(description.strip(), keep_lines=True).splitlines()
        ] + [""]
    lines.append(f"Changes things: {'yes' if tool.get('mutable') else 'no'}")
    shadowed = [name for name in tool.get("shadowed") or () if isinstance(name, str)]
    if shadowed:
        lines.append(f"Also offered, not used: {', '.join(safe(name) for name in shadowed)}")
    lines += ["", "Arguments", *_arguments(schema), "", "Example", f"  {example_call(name, schema)}"]
    return "\n".join(lines)


def _arguments(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required") or ()
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties:
        return ["  (none)"]
    lines = []
    for key in sorted(properties, key=lambda name: (name not in required, name)):
        detail = properties[key] if isinstance(properties[key], Mapping) else {}
        about = detail.get("description")
        words = [_kind(detail), "required" if key in required else "optional"]
        tail = f"  {safe(one_line(about))}" if isinstance(about, str) and about else ""
        lines.append(f"  {safe(str(key))} ({', '.join(words)}){tail}")
    return lines


def _kind(schema: Mapping[str, Any]) -> str:
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return "one of " + ", ".join(safe(str(value)) for value in values[:12])
    kind = schema.get("type", "any")
    return safe(" or ".join(map(str, kind)) if isinstance(kind, list) else str(kind))


def example_call(name: str, schema: Mapping[str, Any]) -> str:
    """A call with every required argument, in the form that a shell takes."""
    properties = schema.get("properties")
    words = ["aos", "tool", "call", name]
    for key in schema.get("required") or ():
        detail = properties.get(key, {}) if isinstance(properties, Mapping) else {}
        kind = detail.get("type") if isinstance(detail, Mapping) else None
        if kind in ("array", "object"):
            words.append(f"{safe(str(key))}:='{'[]' if kind == 'array' else '{}'}'")
        else:
            words += [
                "--arg",
                f"{safe(str(key))}={_SAMPLES.get(kind if isinstance(kind, str) else '', '...')}",
            ]
    return " ".join(words)


_SAMPLES = {"integer": "1", "number": "1.5", "boolean": "true"}


def decode_content(content: str) -> object:
    """A tool's content as a program wants it: the JSON value where it is JSON, else the text itself."""
    try:
        return json.loads(content)
    except ValueError:
        return content


def decode_text(content: str) -> str:
    """A tool's content as text: a JSON string is decoded once, everything else stays as it came."""
    decoded = decode_content(content)
    return decoded if isinstance(decoded, str) else content
