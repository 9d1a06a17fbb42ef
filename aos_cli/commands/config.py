"""`aos capsule config`: the `[env]` values of an installed capsule; that of a secret is never shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from aos_cli.capsule_names import parse_installed_name
from aos_cli.commands.capsule import CAPSULE_HELP
from aos_cli.console import Console, get_console, safe
from aos_cli.install.activation import reload_capsule
from aos_cli.install.env_values import make_asker, parse_settings
from aos_cli.invocation import get_invocation
from aos_cli.render.table import Column, render_table
from aos_runtime.capsule.manifest import EnvRow
from aos_runtime.store.commit import change_env
from aos_runtime.store.env import read_env, render_value
from aos_runtime.store.installed import Installed, read_installed
from aos_runtime.store.layout import open_home
from aos_runtime.store.secrets import list_secrets

_COLUMNS = (
    Column(title="KEY"),
    Column(title="TYPE"),
    Column(title="VALUE", flexible=True),
    Column(title="FROM"),
)


def config(
    name: Annotated[str, typer.Argument(metavar="NAME", help=CAPSULE_HELP)],
    show: Annotated[
        bool, typer.Option("--show", help="Show the values; what happens without --set.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY[=VALUE]",
            help="Set a value. KEY alone takes it from AOS_VAR_<KEY>, or asks: the way for a secret.",
        ),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="KEY", help="Forget a value, or a secret.")
    ] = None,
) -> None:
    """Show or change the values that an installed capsule runs with, for the principal.

    A running daemon takes a change up at once. The value of a secret is never shown, only whether it is set.
    JSON: {name, version, principal, env: [{key, type, secret, value, source}], changed}; `source` is
    `stored`, `default` or `missing`, the value of a secret is null.

    Examples:
      aos capsule config my-capsule
      aos capsule config my-capsule --set region=eu
      AOS_VAR_API_KEY=... aos capsule config my-capsule --set API_KEY
    """
    console, invocation = get_console(), get_invocation()
    home, principal = invocation.home, invocation.principal
    open_home(home, create=False)
    installed = read_installed(home, principal, parse_installed_name(home, principal, name))
    changes = parse_settings(
        installed.manifest, settings or (), unset or (), environ=invocation.environ, ask=make_asker(console)
    )
    changed = sorted({*changes.values, *changes.secrets, *changes.removed})
    if changed:
        change_env(home, principal, installed.name, changes)
        _take_up(installed, console)
    if show or not changed or console.is_json:
        _show(installed, changed, console)


def _take_up(installed: Installed, console: Console) -> None:
    console.success(f"Changed the values of {installed.name}.")
    problem = reload_capsule(get_invocation().home, installed.principal, installed.name)
    if problem:
        console.warn(f"the running daemon did not load it: {safe(problem)}")
        console.hint("run `aos restart`")


def _show(installed: Installed, changed: Sequence[str], console: Console) -> None:
    home = get_invocation().home
    stored = read_env(home, installed.principal, installed.name)
    secrets = frozenset(list_secrets(home, installed.principal, installed.name))
    rows = [_document(row, stored.get, secrets) for row in installed.manifest.env]
    if console.is_json:
        console.json(
            {
                "name": installed.name,
                "version": installed.version,
                "principal": installed.principal,
                "env": rows,
                "changed": list(changed),
            }
        )
    elif rows:
        console.data(render_table(_COLUMNS, [_cells(row) for row in rows], width=console.width))
    else:
        console.note(f"{installed.name} declares no values.")


def _document(row: EnvRow, stored: Callable[[str], object], secrets: frozenset[str]) -> dict[str, object]:
    value = None if row.is_secret else stored(row.key)
    source = "stored" if row.key in secrets or value is not None else "missing"
    if source == "missing" and row.default is not None:
        value, source = None if row.is_secret else row.default, "default"
    return {"key": row.key, "type": row.type, "secret": row.is_secret, "value": value, "source": source}


def _cells(row: dict[str, object]) -> list[str]:
    value = row["value"]
    shown = "" if value is None else safe(render_value(value))
    if row["secret"]:
        shown = "(secret)" if row["source"] == "stored" else ""
    return [safe(str(row["key"])), safe(str(row["type"])), shown, str(row["source"])]
