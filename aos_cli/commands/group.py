"""`aos group ...`: named sets of capabilities that principals are in."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.admin.questions import confirm_or_refuse
from aos_cli.admin.requests import admin_desk, carry_out
from aos_cli.console import get_console, safe
from aos_cli.render.admin import render_group, render_groups
from aos_runtime.errors import InvalidInput

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a group.")]
_UNSAFE_HELP = "Needed where the group holds `*`, which is everything."


def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new group.")],
    caps: Annotated[str, typer.Option("--caps", metavar="LIST", help="Its capabilities, between commas.")],
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="What it is for.")
    ] = None,
    unsafe_admin: Annotated[bool, typer.Option("--unsafe-admin", help=_UNSAFE_HELP)] = False,
) -> None:
    """Create a group.

    JSON: {name, capabilities, description, unsafe_admin, builtin}.

    Examples:
      aos group create builders --caps capsule:install,capsule:reload --description "May install"
    """
    params: dict[str, object] = {
        "name": name,
        "capabilities": _split(caps),
        "description": description,
        "unsafe_admin": unsafe_admin,
    }
    carry_out("GroupCreate", params, f"Created group {safe(name)}.")


def list_groups() -> None:
    """List the groups, the built-in ones first.

    JSON: an array of {name, capabilities, description, unsafe_admin, builtin}.

    Examples:
      aos group list
      aos group list --json
    """
    console = get_console()
    with admin_desk() as desk:
        rows = desk.ask_rows("GroupList")
    if console.is_json:
        console.json(rows)
    else:
        console.data(render_groups(rows, width=console.width))


def show(name: _Name) -> None:
    """Show one group.

    JSON: {name, capabilities, description, unsafe_admin, builtin}.

    Examples:
      aos group show agent
    """
    console = get_console()
    with admin_desk() as desk:
        row = desk.group(name)
    if console.is_json:
        console.json(row)
    else:
        console.data(render_group(row))


def modify(
    name: _Name,
    add_caps: Annotated[
        str | None, typer.Option("--add-caps", metavar="LIST", help="Capabilities to add, between commas.")
    ] = None,
    remove_caps: Annotated[
        str | None,
        typer.Option("--remove-caps", metavar="LIST", help="Capabilities to take away, between commas."),
    ] = None,
    description: Annotated[
        str | None, typer.Option("--description", metavar="TEXT", help="What it is for; empty for none.")
    ] = None,
    unsafe_admin: Annotated[bool, typer.Option("--unsafe-admin", help=_UNSAFE_HELP)] = False,
) -> None:
    """Change a group; its members have what it gives at once.

    JSON: {name, capabilities, description, unsafe_admin, builtin}.

    Examples:
      aos group modify builders --add-caps capsule:remove --remove-caps capsule:reload
    """
    if add_caps is None and remove_caps is None and description is None:
        raise InvalidInput(
            "nothing-to-change", "there is nothing to change", hint="see `aos group modify --help`"
        )
    params: dict[str, object] = {"name": name}
    if description is not None:
        params["description"] = description or None
    if unsafe_admin:
        params["unsafe_admin"] = True
    with admin_desk() as desk:
        if add_caps is not None or remove_caps is not None:
            removed = set(_split(remove_caps or ""))
            held = [str(one) for one in desk.group(name)["capabilities"]]
            wanted = dict.fromkeys((*held, *_split(add_caps or "")))
            params["capabilities"] = [one for one in wanted if one not in removed]
    carry_out("GroupModify", params, f"Changed group {safe(name)}.")


def delete(
    name: _Name,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")] = False,
) -> None:
    """Delete a group that nobody is in. Asks first.

    JSON: {name}.

    Examples:
      aos group delete builders -y
    """
    confirm_or_refuse(get_console(), f"Delete group {safe(name)}?", yes=yes)
    carry_out("GroupDelete", {"name": name}, f"Deleted group {safe(name)}.")


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
