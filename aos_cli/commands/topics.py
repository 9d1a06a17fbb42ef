"""`aos topics match`: what every matcher says of a topic and a pattern, with no daemon and no home."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.console import get_console, safe
from aos_cli.render.topics import MATCHERS, render_verdicts, verdict_document
from aos_runtime.capsule.topics import user_invocable
from aos_runtime.capsule.verdicts import judge_match
from aos_runtime.wire.ingress import topic_refusal


def match(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="A topic, or the pattern that a guest subscribes to.")
    ],
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="A row of [publish] or [subscribe].")],
) -> int:
    """Say what every matcher makes of a topic and a pattern, and why.

    There are five questions and one star: delivery and the two ACLs let a last `*` take one segment or more,
    dispatch takes exactly one, and the gate of a run-time subscription allows it only at the end. Needs no
    daemon. Exit status 1 where none says yes. JSON: {topic, pattern, matches, why, client_may_publish,
    client_refusal}.

    Examples:
      aos topics match tool.v1.execute.hello 'tool.v1.execute.*'
      aos topics match a.b.c.d 'a.b.*' --json
    """
    console = get_console()
    verdicts = judge_match(topic, pattern)
    refusal = topic_refusal(topic)
    if console.is_json:
        console.json(verdict_document(topic, pattern, verdicts, refusal))
    else:
        console.data(render_verdicts(verdicts, width=console.width))
        console.note(f"A client may publish on the topic: {'yes' if refusal is None else f'no, {refusal}'}.")
        surface = user_invocable(topic)
        if surface is not None:
            console.note(
                f"It is a surface of the user ({surface}): one capsule of each principal is bound to it."
            )
        for name, text in MATCHERS.items():
            console.detail(f"{name}: {safe(text)}")
    return 0 if any(one.matches for one in verdicts) else 1
