"""`aos capsule remove`: take a capsule away, and with --purge everything that it left."""

from __future__ import annotations

from typing import Annotated

import typer

from aos_cli.capsule_names import unknown_capsule
from aos_cli.console import get_console, safe
from aos_cli.install.activation import reload_capsule, unload_capsule
from aos_cli.invocation import get_invocation
from aos_runtime.errors import AosError, NotFound
from aos_runtime.names import parse_capsule_name
from aos_runtime.store.commit import Removed, remove_installed
from aos_runtime.store.installed import list_names
from aos_runtime.store.layout import open_home
from aos_runtime.store.profile_edits import disallow_capsule


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of an installed capsule.")],
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove it even where another capsule imports what only it exports."),
    ] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete its env values, secrets and stored data.")
    ] = False,
) -> None:
    """Remove a capsule of the principal; its configuration, secrets and data stay unless --purge is given.

    JSON: {name, version, principal, purged, env_keys, secret_keys, kv_entries}.

    Examples:
      aos capsule remove my-capsule
      aos capsule remove my-capsule --purge
    """
    invocation = get_invocation()
    home, principal = invocation.home, invocation.principal
    capsule = parse_capsule_name(name)
    open_home(home, create=False)
    problem = unload_capsule(home, principal, capsule) if capsule in list_names(home, principal) else None
    try:
        removed = remove_installed(home, principal, capsule, purge=purge, force=force)
    except NotFound:
        raise unknown_capsule(principal, capsule, list_names(home, principal)) from None
    except AosError:
        reload_capsule(home, principal, capsule)
        raise
    disallow_capsule(home, principal, capsule)
    _show(removed, purge=purge)
    if problem:
        get_console().warn(f"the running daemon did not unload it: {safe(problem)}")
        get_console().hint("run `aos restart`")


def _show(removed: Removed, *, purge: bool) -> None:
    console = get_console()
    if console.is_json:
        console.json(
            {
                "name": removed.name,
                "version": removed.version,
                "principal": get_invocation().principal,
                "purged": purge,
                "env_keys": list(removed.env_keys),
                "secret_keys": list(removed.secret_keys),
                "kv_entries": removed.kv_entries,
            }
        )
        return
    version = f" {safe(removed.version)}" if removed.version else ""
    console.success(f"Removed {removed.name}{version}.")
    if not purge:
        console.note("Its configuration, secrets and data are kept; `--purge` deletes them.")
        return
    parts = [f"env {', '.join(safe(key) for key in removed.env_keys)}"] if removed.env_keys else []
    parts += [f"secrets {', '.join(removed.secret_keys)}"] if removed.secret_keys else []
    parts += [f"{removed.kv_entries} stored entries"] if removed.kv_entries else []
    console.note(f"Deleted: {'; '.join(parts) or 'nothing else was there'}.")
