"""`aos agent ...`: the principals of a home, through the running daemon."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.admin.amounts import parse_seconds, parse_size
from aos_cli.admin.questions import confirm_or_refuse
from aos_cli.admin.requests import admin_desk, own_name
from aos_cli.console import get_console, safe
from aos_cli.render.admin import render_agent, render_agents
from aos_cli.render.units import plural
from aos_runtime.errors import InvalidInput

NAME_HELP = "Name of a principal."
_Name = Annotated[str, typer.Argument(metavar="NAME", help=NAME_HELP)]


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new principal.")],
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group it is in (default: agent).")
    ] = None,
    grant: Annotated[
        list[str] | None, typer.Option("--grant", metavar="CAPABILITY", help="A capability it is given.")
    ] = None,
    inherit_from: Annotated[
        str | None,
        typer.Option(
            "--inherit-from",
            metavar="NAME",
            help="Copy installed capsules, env values and secrets from NAME.",
        ),
    ] = None,
    clone: Annotated[
        str | None,
        typer.Option("--clone", metavar="NAME", help="Copy these and groups, rights and quotas from NAME."),
    ] = None,
    unsafe_admin: Annotated[
        bool, typer.Option("--unsafe-admin", help="With --clone: also of one that may do everything.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Memory of an instance.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Wall time of a call.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option("--storage", metavar="SIZE", help="What its capsules store together.")
    ] = None,
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", help="Background processes.", min=0, max=256)
    ] = None,
) -> None:
    """Create a principal with a key of its own. It inherits nothing, unless one is named to copy from.

    JSON: {principal, astrid_user_id}.

    Examples:
      aos agent create bob
      aos agent create carol --group restricted --grant self:capsule:list
      aos agent create dave --inherit-from bob --memory 128MiB
    """
    console = get_console()
    if unsafe_admin and clone is None:
        raise typer.BadParameter("--unsafe-admin goes with --clone")
    quotas = _quotas(memory, timeout, storage, processes)
    if clone is not None and (group or grant or inherit_from or quotas):
        raise typer.BadParameter("--clone takes everything from NAME; change the clone afterwards")
    params: dict[str, object] = {
        "name": name,
        "groups": group or [],
        "grants": grant or [],
        "inherit_from": inherit_from,
        "clone_from": clone,
        "allow_admin_clone": unsafe_admin,
    }
    with admin_desk() as desk:
        made = desk.ask_row("AgentCreate", params)
        if quotas:
            desk.ask("QuotaSet", {"principal": name, "quotas": quotas})
    if console.is_json:
        console.json(made)
    else:
        console.success(f"Created agent {safe(name)}.")
        console.hint(f"act for it with `aos --principal {safe(name)} ...`")


def list_agents(
    group: Annotated[
        str | None, typer.Option("--group", metavar="GROUP", help="Only those in this group.")
    ] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Only the one that you act for.")] = False,
) -> None:
    """List the principals that you may see, with their state and groups.

    JSON: an array of {principal, owner_uid, accountable_user, enabled, groups, grants, revokes, capsules}.

    Examples:
      aos agent list
      aos agent list --group agent --json
    """
    console = get_console()
    with admin_desk() as desk:
        rows = desk.ask_rows("AgentList")
    rows = [row for row in rows if not mine or row["principal"] == own_name()]
    rows = [row for row in rows if group is None or group in row["groups"]]
    if console.is_json:
        console.json(rows)
    elif rows:
        console.data(render_agents(rows, width=console.width))
    else:
        console.note("No agents.")


def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A principal (default: the one you act for).")
    ] = None,
) -> None:
    """Show one principal: state, groups, grants, revokes, and the capsules that it may call.

    JSON: {principal, owner_uid, accountable_user, enabled, groups, grants, revokes, capsules}.

    Examples:
      aos agent show bob
      aos agent show bob --json
    """
    console = get_console()
    with admin_desk() as desk:
        row = desk.agent(name or own_name())
    if console.is_json:
        console.json(row)
    else:
        console.data(render_agent(row))


def enable(name: _Name) -> None:
    """Let a principal act again.

    JSON: {principal, enabled, changed}.

    Examples:
      aos agent enable bob
    """
    _switch("AgentEnable", name, "enabled")


def disable(name: _Name) -> None:
    """Stop a principal: it can neither connect nor call, its connections end, its data stays.

    JSON: {principal, enabled, changed}.

    Examples:
      aos agent disable bob
    """
    _switch("AgentDisable", name, "disabled")


def delete(
    name: _Name,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> int:
    """Delete a principal with its key, capsules, env values, secrets, stored data and logs.

    Asks first; exit status 1 where the answer is no, or where something could not be removed.
    JSON: {principal, unloaded_capsules, reclaimed, cleanup_errors}.

    Examples:
      aos agent delete bob
      aos agent delete bob -y --json
    """
    console = get_console()
    confirm_or_refuse(console, f"Delete agent {safe(name)} and everything that belongs to it?", yes=yes)
    with admin_desk() as desk:
        gone = desk.ask_row("AgentDelete", {"principal": name})
    if console.is_json:
        console.json(gone)
    else:
        unloaded = plural(len(gone["unloaded_capsules"]), "capsule")
        console.success(f"Deleted agent {safe(name)}; {unloaded} unloaded.")
        for problem in gone["cleanup_errors"]:
            console.warn(f"not removed: {safe(str(problem))}")
    return 1 if gone["cleanup_errors"] else 0


def modify(
    name: _Name,
    add_group: Annotated[
        list[str] | None, typer.Option("--add-group", metavar="GROUP", help="Put it into a group.")
    ] = None,
    remove_group: Annotated[
        list[str] | None, typer.Option("--remove-group", metavar="GROUP", help="Take it out of a group.")
    ] = None,
    add_capsule: Annotated[
        list[str] | None, typer.Option("--add-capsule", metavar="CAPSULE", help="Let it call a capsule.")
    ] = None,
    remove_capsule: Annotated[
        list[str] | None, typer.Option("--remove-capsule", metavar="CAPSULE", help="Let it call it no more.")
    ] = None,
) -> None:
    """Change the groups of a principal, and the capsules that it may call.

    JSON: {principal, groups, capsules, changed}.

    Examples:
      aos agent modify bob --add-capsule my-capsule
      aos agent modify bob --add-group builders --remove-group agent
    """
    console = get_console()
    changes = {
        "add_groups": add_group,
        "remove_groups": remove_group,
        "add_capsules": add_capsule,
        "remove_capsules": remove_capsule,
    }
    if not any(changes.values()):
        raise InvalidInput(
            "nothing-to-change", "there is nothing to change", hint="see `aos agent modify --help`"
        )
    given: dict[str, object] = {key: items for key, items in changes.items() if items}
    with admin_desk() as desk:
        after = desk.ask_row("AgentModify", {"principal": name, **given})
    if console.is_json:
        console.json(after)
    elif after["changed"]:
        console.success(f"Changed agent {safe(name)}.")
    else:
        console.note(f"Agent {safe(name)} was that way already.")


def _switch(method: str, name: str, state: str) -> None:
    console = get_console()
    with admin_desk() as desk:
        after = desk.ask_row(method, {"principal": name})
    if console.is_json:
        console.json(after)
    elif after["changed"]:
        console.success(f"Agent {safe(name)} is {state}.")
    else:
        console.note(f"Agent {safe(name)} was {state} already.")


def _quotas(
    memory: str | None, timeout: str | None, storage: str | None, processes: int | None
) -> dict[str, int]:
    values = {
        "max_memory_bytes": None if memory is None else parse_size(memory),
        "max_timeout_secs": None if timeout is None else parse_seconds(timeout),
        "max_storage_bytes": None if storage is None else parse_size(storage),
        "max_background_processes": processes,
    }
    return {key: value for key, value in values.items() if value is not None}
