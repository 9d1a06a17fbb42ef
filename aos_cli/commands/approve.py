"""`aos approve`: what capsules wait for, what was allowed for good, and the answers of an operator."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from aos_cli.client import connect
from aos_cli.console import get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.approvals import render_approvals
from aos_cli.tools.door import malformed_answer
from aos_runtime.errors import InvalidInput

LIST_WORD = "list"


def approve(
    request: Annotated[
        str,
        typer.Argument(metavar="[list|ID]", help="What to answer, as `list` shows it.", show_default=False),
    ] = LIST_WORD,
    once: Annotated[bool, typer.Option("--once", help="Allow this one request.")] = False,
    session: Annotated[
        bool, typer.Option("--session", help="Allow it until the daemon stops, for this capsule.")
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Allow it for good, for this capsule and principal.")
    ] = False,
    deny: Annotated[bool, typer.Option("--deny", help="Refuse it.")] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Take a standing approval back, effective at once.")
    ] = False,
) -> int:
    """List what capsules ask to be allowed, and answer.

    A request waits a minute for an answer. What was allowed with --session or --always covers the same
    resource and the same command with other plain words, in the same workspace, and no other capsule.
    Rules for when nobody can be asked are in etc/approvals.toml of the home, as [[rule]] tables with
    capsule, action and resource (patterns: * is any text) and decision = "allow" or "deny"; a denial wins,
    and what no rule allows is denied. JSON: {principal, pending, standing}, or the answer's record.

    Examples:
      aos approve
      aos approve 7f3c2a90-5d1e-4c58-8e0f-0d9a1b2c3d4e --once
      aos approve 7f3c2a90-5d1e-4c58-8e0f-0d9a1b2c3d4e --deny
      aos approve always-0123456789ab --revoke
    """
    chosen = {
        "approve": once,
        "approve_session": session,
        "approve_always": always,
        "deny": deny,
        "revoke": revoke,
    }
    decisions = [word for word, given in chosen.items() if given]
    if request == LIST_WORD and not decisions:
        return _list()
    if request == LIST_WORD or len(decisions) != 1:
        raise InvalidInput(
            "approve-answer",
            "an answer is one ID with one of --once, --session, --always, --deny and --revoke",
            hint="`aos approve` shows the IDs",
        )
    return _answer(request, decisions[0])


def _list() -> int:
    console = get_console()
    data = _ask("ApprovalList", {})
    if console.is_json:
        console.json(data)
        return 0
    text = render_approvals(data)
    if text:
        console.data(text)
    else:
        console.note("No capsule asks for anything, and nothing is allowed for good.")
    return 0


def _answer(request: str, decision: str) -> int:
    console = get_console()
    if decision == "revoke":
        data = _ask("ApprovalRevoke", {"id": request})
    else:
        data = _ask("ApprovalAnswer", {"request_id": request, "decision": decision})
    if console.is_json:
        console.json(data)
    else:
        done = {"deny": "Denied", "revoke": "Revoked"}.get(decision, "Allowed")
        console.success(f"{done}.")
    return 0


def _ask(method: str, params: dict[str, object]) -> dict[str, Any]:
    invocation = get_invocation()
    with connect(invocation.home, invocation.principal) as daemon:
        data = daemon.admin_request(method, params)
    if not isinstance(data, dict):
        raise malformed_answer()
    return data
