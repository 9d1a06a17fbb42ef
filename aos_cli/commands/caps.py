"""`aos caps ...`: what a principal may do, from where, and what would change it."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from aos_cli.admin.requests import AdminDesk, Row, admin_desk, carry_out, own_name
from aos_cli.console import get_console, safe
from aos_cli.render.admin import render_capabilities, render_reasons

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a principal.")]
_Capability = Annotated[
    str, typer.Argument(metavar="CAPABILITY", help="For example capsule:install; a `*` ends a pattern.")
]


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A principal (default: the one you act for).")
    ] = None,
) -> None:
    """Show every capability of a principal, where it comes from, and whether it holds.

    JSON: {principal, groups, grants, revokes}.

    Examples:
      aos caps show
      aos caps show bob --json
    """
    console = get_console()
    with admin_desk() as desk:
        agent = desk.agent(name or own_name())
        rows = _rows(desk, agent)
    if console.is_json:
        console.json({key: agent[key] for key in ("principal", "groups", "grants", "revokes")})
    elif rows:
        console.data(render_capabilities(rows, width=console.width))
    else:
        console.note(f"Agent {safe(str(agent['principal']))} has no capabilities.")


def grant(
    name: _Name,
    capability: _Capability,
    unsafe_admin: Annotated[
        bool, typer.Option("--unsafe-admin", help="Needed to grant `*`, which is everything.")
    ] = False,
) -> None:
    """Grant a capability to a principal; a revoke of the same pattern is taken back.

    JSON: {principal, grants, revokes}.

    Examples:
      aos caps grant bob capsule:install
      aos caps grant bob "self:capsule:*"
    """
    if capability == "*" and not unsafe_admin:
        raise typer.BadParameter("`*` grants everything there is; pass --unsafe-admin if that is meant")
    params: dict[str, object] = {
        "principal": name,
        "capabilities": [capability],
        "unsafe_admin": unsafe_admin,
    }
    carry_out("CapsGrant", params, f"Granted '{safe(capability)}' to agent '{safe(name)}'.")


def revoke(name: _Name, capability: _Capability) -> None:
    """Revoke a capability, also where a group gives it; a grant of the same pattern is taken back.

    JSON: {principal, grants, revokes}.

    Examples:
      aos caps revoke bob capsule:install
    """
    params: dict[str, object] = {"principal": name, "capabilities": [capability]}
    carry_out("CapsRevoke", params, f"Revoked '{safe(capability)}' from agent '{safe(name)}'.")


def check(name: _Name, capability: _Capability) -> int:
    """Say whether a principal may do something: exit status 0 if it may, 1 if not.

    JSON: {principal, capability, allowed}.

    Examples:
      aos caps check bob capsule:install && echo yes
    """
    console = get_console()
    with admin_desk() as desk:
        data = _explain(desk, name, capability)
    if console.is_json:
        console.json({key: data[key] for key in ("principal", "capability", "allowed")})
    else:
        console.data("allowed" if data["allowed"] else "denied")
    return 0 if data["allowed"] else 1


def why(name: _Name, capability: _Capability) -> int:
    """Explain a capability: which grant, group or revoke decides, and what would allow it.

    Exit status 0 if the principal may, 1 if not. JSON: {principal, capability, allowed, denial, enabled,
    given_by, revoked_by, groups_that_give, would_allow}.

    Examples:
      aos caps why bob capsule:install
      aos caps why bob capsule:access:any --json
    """
    console = get_console()
    with admin_desk() as desk:
        data = _explain(desk, name, capability)
    allowing = _allowing(data)
    if console.is_json:
        console.json({**data, "would_allow": allowing})
    else:
        console.data(render_reasons(data, allowing=allowing))
    return 0 if data["allowed"] else 1


def _explain(desk: AdminDesk, name: str, capability: str) -> Row:
    return desk.ask_row("CapsExplain", {"principal": name, "capability": capability})


def _allowing(data: Row) -> list[str]:
    """The commands, together or one of them, that would allow what is denied."""
    if data["allowed"]:
        return []
    name, capability = str(data["principal"]), str(data["capability"])
    if name == "anonymous":
        return []
    commands = [] if data["enabled"] else [f"aos agent enable {shlex.quote(name)}"]
    revokes = [str(source["pattern"]) for source in data["revoked_by"]]
    wanted = revokes or ([] if data["given_by"] else [capability])
    for pattern in wanted:
        suffix = " --unsafe-admin" if pattern == "*" else ""
        commands.append(f"aos caps grant {shlex.quote(name)} {shlex.quote(pattern)}{suffix}")
    if not revokes and not data["given_by"]:
        groups = [str(group) for group in data["groups_that_give"] if group != "admin"]
        commands += [f"aos agent modify {shlex.quote(name)} --add-group {group}" for group in groups]
    return commands


def _rows(desk: AdminDesk, agent: Row) -> list[tuple[str, str, str]]:
    """Capability, source and status, the groups' first."""
    groups = {row["name"]: row["capabilities"] for row in desk.ask_rows("GroupList")}
    name = str(agent["principal"])
    rows = [
        (capability, f"group {group}", _status(desk, name, capability, "inherited"))
        for group in agent["groups"]
        for capability in _texts(groups.get(group))
    ]
    rows += [
        (capability, "grant", _status(desk, name, capability, "active"))
        for capability in _texts(agent["grants"])
    ]
    rows += [(capability, "revoke", "revoked") for capability in _texts(agent["revokes"])]
    return rows


def _status(desk: AdminDesk, name: str, capability: str, otherwise: str) -> str:
    return "shadowed by revoke" if _explain(desk, name, capability)["revoked_by"] else otherwise


def _texts(items: Any) -> list[str]:
    return [str(item) for item in items or ()]
