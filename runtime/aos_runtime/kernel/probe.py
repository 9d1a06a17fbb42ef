"""Asking a freshly loaded capsule which tools it has.

The probe calls `tool_describe` with `{}`, and what the guest publishes meanwhile goes to nobody.  Source:
daemon-kernel.md 8.4.  A capsule that does not know the action has no tools; one that traps has unknown tools,
and the trap is reported.  What it says is untrusted: names and counts are bounded, a malformed entry is left
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from aos_runtime.capsule.topics import is_tool_name, tool_topic
from aos_runtime.host import GuestTrap
from aos_runtime.kernel.actor import Generation
from aos_runtime.kernel.failures import failure_sentence
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.kernel import system_cause

DESCRIBE_TOPIC = "tool.v1.request.describe"
DESCRIBED_PREFIX = "tool.v1.response.describe."
DESCRIBE_ACTION = b"tool_describe"
PROBE_TIMEOUT_S = 5.0
"""A capsule that spins in its describe handler delays a load by no more than this."""

MAX_TOOLS = 256
MAX_TOOL_NAME_CHARS = 200
MAX_DESCRIPTION_CHARS = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool as its capsule describes it.

    `input_schema` is its JSON Schema; `mutable` changes no routing.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    mutable: bool

    def to_json(self) -> dict[str, object]:
        """The shape of `meta.tools` in capsules_loaded."""
        return {"name": self.name, "description": self.description, "input_schema": dict(self.input_schema)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What a probe learnt.

    `tools` is None where the capsule could not be asked; `warnings` are sentences.
    """

    tools: tuple[Tool, ...] | None
    warnings: tuple[str, ...] = ()


def describe(generation: Generation, port: GuestPort) -> Described:
    """Probe one generation that serves nobody yet."""
    port.overheard = []
    cause = system_cause(generation.context.principal)
    generation.context.current = msgspec.structs.replace(cause, topic=DESCRIBE_TOPIC, body=b"{}")
    try:
        result = generation.instance().hook(DESCRIBE_ACTION, b"{}", timeout_s=PROBE_TIMEOUT_S)
    except GuestTrap as trap:
        return Described(tools=None, warnings=(f"tool_describe failed: {failure_sentence(trap)}",))
    finally:
        overheard, port.overheard = port.overheard, None
        generation.context.current = None
    if result.action in ("deny", "abort"):
        return Described(tools=())
    published = [message.body for message in overheard if message.topic.startswith(DESCRIBED_PREFIX)]
    found = (read_description(body) for body in (result.data or b"", *published))
    return next((one for one in found if one is not None), Described(tools=()))


def read_description(body: bytes) -> Described | None:
    """What a description says, bounded; None where it is none."""
    rows = _rows(body)
    return None if rows is None else _read_rows(rows)


def unrouted(tools: Iterable[Tool], handled: Iterable[str]) -> tuple[str, ...]:
    """A warning for each described tool that the manifest binds to no handler (BUS-04)."""
    rows = frozenset(handled)
    return tuple(
        f"tool '{tool.name}' is described but no [subscribe] row handles {tool_topic(tool.name)}; "
        f'add: "{tool_topic(tool.name)}" = {{ wit = "opaque", handler = "tool_execute_{tool.name}" }}'
        for tool in tools
        if tool_topic(tool.name) not in rows
    )


def _rows(body: bytes) -> list[Any] | None:
    """The list under `tools`, also where it is wrapped in `data`; None where there is none."""
    try:
        value = msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None
    if isinstance(value, dict) and isinstance(value.get("data"), dict):
        value = value["data"] if "tools" not in value else value
    rows = value.get("tools") if isinstance(value, dict) else None
    return rows if isinstance(rows, list) else None


def _read_rows(rows: list[Any]) -> Described:
    tools: dict[str, Tool] = {}
    warnings = []
    if len(rows) > MAX_TOOLS:
        warnings.append(f"describes {len(rows)} tools; only the first {MAX_TOOLS} count")
    for row in rows[:MAX_TOOLS]:
        tool = _tool(row)
        if isinstance(tool, str):
            warnings.append(tool)
        elif tool.name in tools:
            warnings.append(f"describes tool '{tool.name}' twice; the first one counts")
        else:
            tools[tool.name] = tool
    return Described(tools=tuple(tools.values()), warnings=tuple(warnings))


def _tool(row: Any) -> Tool | str:
    """A tool, or the warning that says what is wrong with it."""
    name = row.get("name") if isinstance(row, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_TOOL_NAME_CHARS:
        return "describes a tool without a usable name"
    if not is_tool_name(name):
        return f"describes a tool named {name!r}, which no call can reach"
    schema = row.get("input_schema")
    if not isinstance(schema, dict):
        schema = {"type": "object", "properties": {}}
    description = row.get("description")
    return Tool(
        name=name,
        description=description[:MAX_DESCRIPTION_CHARS] if isinstance(description, str) else "",
        input_schema=schema,
        mutable=schema.get("mutable") is True or row.get("mutable") is True,
    )
