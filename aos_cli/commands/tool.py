"""`aos tool list` and `aos tool show`: what the running capsules offer, through the door for tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from aos_cli.console import get_console
from aos_cli.render.tools import normal_schema, render_tool, render_tools
from aos_cli.render.units import plural
from aos_cli.tools.door import NO_START_HELP, TOOL_HELP, find_tool, list_all, open_door


def _document(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {**tool, "input_schema": normal_schema(tool.get("input_schema"))}


def list_tools(
    no_start: Annotated[bool, typer.Option("--no-start", help=NO_START_HELP)] = False,
) -> None:
    """List the tools of the running capsules, with what they do and who provides them.

    Starts an ephemeral daemon where none runs. JSON: an array of {name, description, input_schema, mutable,
    capsule, shadowed}.

    Examples:
      aos tool list
      aos tool list --json
    """
    console = get_console()
    with open_door(start=not no_start) as door:
        tools = list_all(door)
    if console.is_json:
        console.json([_document(tool) for tool in tools])
    elif tools:
        console.data(render_tools(tools, width=console.width))
        console.detail(plural(len(tools), "tool"))
    else:
        console.note("No tools: no running capsule describes one.")


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help=TOOL_HELP)],
    no_start: Annotated[bool, typer.Option("--no-start", help=NO_START_HELP)] = False,
) -> None:
    """Show one tool: what it does, its arguments, an example call.

    JSON: {name, description, input_schema, mutable, capsule, shadowed}.

    Examples:
      aos tool show hello
      aos tool show hello --json
    """
    console = get_console()
    with open_door(start=not no_start) as door:
        tool = find_tool(list_all(door), name)
    if console.is_json:
        console.json(_document(tool))
    else:
        console.data(render_tool(tool))
