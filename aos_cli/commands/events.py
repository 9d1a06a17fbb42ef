"""`aos events tail | pub | request`: watch the bus and speak on it, through the daemon's events door."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from aos_cli.console import Console, get_console, safe
from aos_cli.render.events import render_event
from aos_cli.render.units import plural
from aos_cli.tools.arguments import read_input
from aos_cli.watch.door import ask, default_reply_topic, follow, open_events, request

EVERYBODY = "*"
PAYLOADS_HELP = "Show payloads; secrets stay hidden."
OF_HELP = "Of another principal (needs audit:read_all)."
EVERYBODY_HELP = "Of every principal (needs audit:read_all)."
MAX_TIMEOUT_S = 3600


def whose(of: str | None, *, everybody: bool) -> str | None:
    """The principal parameter of a request: None is the caller's own."""
    return EVERYBODY if everybody else of


def tail(
    pattern: Annotated[
        str | None,
        typer.Argument(metavar="[PATTERN]", help="Only topics that it covers; a last * takes the rest."),
    ] = None,
    capsule: Annotated[
        str | None, typer.Option("--capsule", metavar="NAME", help="Only what it publishes or is sent.")
    ] = None,
    of: Annotated[str | None, typer.Option("--of", metavar="PRINCIPAL", help=OF_HELP)] = None,
    everybody: Annotated[bool, typer.Option("--all-principals", help=EVERYBODY_HELP)] = False,
    payloads: Annotated[bool, typer.Option("--payloads", help=PAYLOADS_HELP)] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="End after so many events.")
    ] = None,
) -> None:
    """Show the messages on the bus as they pass, until Ctrl-C.

    Without --payloads only size, a digest and the top-level keys are shown. What the watcher is too slow for
    is lost and counted; the bus never waits. It needs self:audit:read. JSON: one object a line {event_id,
    seq, time, topic, kind, principal, source, origin, targets, size_bytes, digest, keys, payload?}, or
    {dropped}.

    Examples:
      aos events tail
      aos events tail 'tool.v1.*' --payloads
      aos events tail --capsule router -n 10 --json
    """
    console = get_console()
    params: dict[str, object] = {
        "pattern": pattern,
        "capsule": capsule,
        "principal": whose(of, everybody=everybody),
        "payloads": payloads,
        "limit": count,
    }
    with open_events() as daemon:
        for reply in follow(daemon, params):
            data = reply.data if isinstance(reply.data, dict) else {}
            if reply.status == "Event":
                _show(console, data, with_principal=of is not None or everybody)
            elif reply.status == "Dropped":
                _show_dropped(console, data.get("count"))
            elif reply.status == "Tailing":
                console.detail("watching; Ctrl-C ends it")


def _show(console: Console, event: dict[str, Any], *, with_principal: bool) -> None:
    if console.is_json:
        console.json(event, compact=True)
    else:
        console.data(render_event(event, with_principal=with_principal))


def _show_dropped(console: Console, count: object) -> None:
    lost = count if isinstance(count, int) else 0
    if console.is_json:
        console.json({"dropped": lost}, compact=True)
    else:
        console.warn(f"{plural(lost, 'event')} lost: more came than could be shown")


def pub(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the message.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="An object, @FILE, or - for stdin.")],
) -> None:
    """Publish one message in your own name.

    Topics that clients may use follow the rules for clients. Any other topic outside of astrid. and client.
    needs capsule:access:any. Principal and origin are those of the connection. JSON: {topic, handlers,
    taken}.

    Examples:
      aos events pub my-agent.v1.wake '{"reason":"test"}'
      aos events pub cli.v1.command.run.greet @request.json
    """
    console = get_console()
    message = read_payload(payload)
    with open_events() as daemon:
        answer = ask(daemon, "publish", {"topic": topic, "payload": message})
    if console.is_json:
        console.json(answer)
        return
    handlers = [safe(str(name)) for name in answer.get("handlers") or ()]
    if handlers:
        console.success(f"Published to {', '.join(handlers)}.")
    elif answer.get("taken"):
        console.success("Published to the daemon.")
    else:
        console.warn("published, and no capsule handles the topic")


def send_request(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic of the message.")],
    payload: Annotated[str, typer.Argument(metavar="JSON", help="An object, @FILE, or - for stdin.")],
    reply_topic: Annotated[
        str | None,
        typer.Option("--reply-topic", metavar="TOPIC", help="Where the answer comes; a pattern is fine."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0.1, max=MAX_TIMEOUT_S, help="Give up after this long."
        ),
    ] = 15.0,
) -> None:
    """Publish one message and print the payload of the first answer.

    Where the answer comes is known for astrid.v1.request, cli.v1.command.run and session.v1.request topics;
    elsewhere --reply-topic says it. Rights as of `aos events pub`, and of `aos events tail` for a reply topic
    that clients are not sent. JSON: the payload.

    Examples:
      aos events request astrid.v1.request.status.x '{"type":"raw_json","method":"GetStatus"}'
      aos events request my-agent.v1.ask '{"q":1}' --reply-topic my-agent.v1.answer --timeout 5
    """
    console = get_console()
    message = read_payload(payload)
    answer = reply_topic or default_reply_topic(topic, message)
    if answer is None:
        raise typer.BadParameter("no reply topic is known for this topic", param_hint="--reply-topic")
    with open_events() as daemon:
        found = request(daemon, topic, message, answer=answer, timeout_s=timeout)
    if console.is_json:
        console.json(found)
    else:
        console.data(safe(json.dumps(found, ensure_ascii=False, indent=2), keep_lines=True))


def read_payload(text: str) -> dict[str, object]:
    """The JSON object that an argument names; a usage error where it is none."""
    try:
        value = json.loads(read_input(text))
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint="JSON") from None
    if not isinstance(value, dict):
        raise typer.BadParameter("a message is a JSON object", param_hint="JSON")
    return value
