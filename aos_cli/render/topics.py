"""Verdicts about a topic and a pattern as a table and as a document.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aos_cli.console import safe
from aos_cli.render.table import Column, render_table
from aos_runtime.capsule.verdicts import Verdict

MATCHERS = {
    "delivery": "what `subscribe` rows without a handler and clients receive",
    "publish-acl": "what a `[publish]` row lets a capsule publish",
    "subscribe-acl": "what a `[subscribe]` row lets a capsule subscribe to at run time",
    "dispatch": "which handler of a `[subscribe]` row is called",
    "subscribe-gate": "what a capsule may pass to `subscribe`",
}
"""What each matcher decides, in its order."""

_COLUMNS = (Column(title="MATCHER"), Column(title="VERDICT"), Column(title="WHY", flexible=True))


def render_verdicts(verdicts: Sequence[Verdict], *, width: int | None) -> str:
    """One line per matcher."""
    rows = [[one.matcher, "yes" if one.matches else "no", safe(one.why)] for one in verdicts]
    return render_table(_COLUMNS, rows, width=width)


def verdict_document(
    topic: str, pattern: str, verdicts: Sequence[Verdict], front_door: str | None
) -> dict[str, Any]:
    """The same for a program."""
    return {
        "topic": topic,
        "pattern": pattern,
        "matches": {one.matcher: one.matches for one in verdicts},
        "why": {one.matcher: one.why for one in verdicts},
        "client_may_publish": front_door is None,
        "client_refusal": front_door,
    }
