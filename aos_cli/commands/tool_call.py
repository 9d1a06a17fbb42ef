"""`aos tool call`: check the arguments, call, print the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from aos_cli.client import Connection, reply_error
from aos_cli.console import Console, get_console, safe
from aos_cli.invocation import get_invocation
from aos_cli.render.tools import decode_content, decode_text, normal_schema
from aos_cli.tools.approval_prompt import ApprovalPrompt
from aos_cli.tools.arguments import build_arguments, check_arguments, read_input
from aos_cli.tools.door import (
    NO_START_HELP,
    TOOL_HELP,
    call_tool,
    find_tool,
    list_all,
    malformed_answer,
    open_door,
    wait_event,
)
from aos_runtime.wire.client import Event, Reply

MAX_TIMEOUT_S = 3600


def call(
    name: Annotated[str, typer.Argument(metavar="NAME", help=TOOL_HELP)],
    json_pairs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY:=JSON]...", help="An argument whose value is JSON.", show_default=False),
    ] = None,
    arg: Annotated[
        list[str] | None,
        typer.Option("--arg", "-a", metavar="KEY=VALUE", help="An argument, read by the type of the schema."),
    ] = None,
    input_text: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="JSON", help="The whole argument object: JSON, @FILE, or - for stdin."
        ),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Print the content exactly as the tool gave it.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, max=MAX_TIMEOUT_S, help="Give up after this long."
        ),
    ] = 60.0,
    approve: Annotated[
        list[str] | None,
        typer.Option(
            "--approve", metavar="ACTION", help="Allow this action once each time the tool asks for it."
        ),
    ] = None,
    no_start: Annotated[bool, typer.Option("--no-start", help=NO_START_HELP)] = False,
) -> int:
    """Call a tool and print its answer.

    Arguments are checked against the tool's schema before anything is sent. A tool may ask for an approval:
    it is shown here and denied unless you agree; without a terminal it is denied at once, unless --approve
    or a rule in etc/approvals.toml allows it. So is the use of a capsule that your principal was not granted
    yet. An answer that is one JSON string is printed decoded. Exit status 1 where the tool says that it
    failed. JSON: {call_id, tool, capsule, content, value, is_error, duration_ms}, where value is the content
    parsed as JSON where it is JSON.

    Examples:
      aos tool call hello --arg name=Ada
      aos tool call add a:=1 b:=2
      echo '{"name":"Ada"}' | aos tool call hello --input -
      aos tool call report --input @request.json --timeout 300
      aos tool call deploy --arg branch=main --approve "git push"
    """
    whole = None if input_text is None else read_input(input_text)
    with open_door(start=not no_start) as door:
        tool = find_tool(list_all(door), name)
        schema = normal_schema(tool.get("input_schema"))
        arguments = build_arguments(schema, pairs=arg or (), json_pairs=json_pairs or (), whole=whole)
        check_arguments(arguments, schema)
        reply = _call(door, name, arguments, timeout_s=timeout, actions=approve or ())
    if reply.is_error:
        raise reply_error(reply)
    if not isinstance(reply.data, dict) or not isinstance(reply.data.get("content"), str):
        raise malformed_answer()
    return _show(get_console(), name, reply.data, raw=raw)


def _call(
    door: Connection,
    name: str,
    arguments: Mapping[str, Any],
    *,
    timeout_s: float,
    actions: Sequence[str],
) -> Reply:
    """The reply; what the tool asks meanwhile is answered here."""
    policy_file = str(get_invocation().home.approvals_file)
    prompt = ApprovalPrompt(get_console(), policy_file=policy_file, actions=actions)

    def on_event(event: Event) -> None:
        prompt.handle(event, door.publish)

    reply = call_tool(door, name, arguments, timeout_s=timeout_s, on_event=on_event)
    if prompt.was_granted(lambda seconds, is_enough: wait_event(door, seconds, is_enough)):
        return call_tool(door, name, arguments, timeout_s=timeout_s, on_event=on_event)
    return reply


def _show(console: Console, name: str, answer: Mapping[str, Any], *, raw: bool) -> int:
    content = str(answer["content"])
    shown = content if raw else decode_text(content)
    failed = bool(answer.get("is_error"))
    if console.is_json:
        document = {"tool": name, **answer, "content": shown, "is_error": failed}
        console.json({**document, "value": decode_content(content)})
    elif failed:
        console.error(f"tool `{name}` failed: {safe(shown, keep_lines=True)}")
    else:
        console.data(safe(shown, keep_lines=True) if console.stdout_is_terminal else shown)
    duration = answer.get("duration_ms")
    if isinstance(duration, (int, float)):
        console.detail(
            f"{safe(str(answer.get('capsule') or 'unknown capsule'))} answered in {duration:.1f} ms"
        )
    return 1 if failed else 0
