"""`aos capsule list` and `show`: read from disk, in the caller's principal, with no daemon."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from aos_cli.capsule_names import parse_installed_name
from aos_cli.console import get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.capsules import (
    list_document,
    render_capsule,
    render_capsule_details,
    render_capsule_list,
    show_document,
)
from aos_cli.render.units import plural
from aos_runtime.capsule.manifest import MANIFEST_FILE
from aos_runtime.capsule.manifest_text import MAX_MANIFEST_BYTES
from aos_runtime.errors import Corrupt
from aos_runtime.store.env import read_env
from aos_runtime.store.files import read_bounded
from aos_runtime.store.installed import (
    Broken,
    Installed,
    check_installed,
    list_installed,
    read_installed,
)
from aos_runtime.store.layout import open_home
from aos_runtime.store.secrets import list_secrets

CAPSULE_HELP = "Name of an installed capsule."


def list_capsules() -> None:
    """List the capsules that are installed for the principal; -v shows each in full.

    Works without a daemon. A capsule that cannot be read is listed as broken with the reason. JSON: an
    array of {name, version, state, description, principal, origin, source, wasm_hash, tools, ...}.

    Examples:
      aos capsule list
      aos capsule list -v
      aos --principal bob capsule list --json
    """
    console, invocation = get_console(), get_invocation()
    open_home(invocation.home, create=False)
    entries = list_installed(invocation.home, invocation.principal)
    if console.is_json:
        console.json(list_document(entries))
    elif not entries:
        console.note(f"No capsules are installed for principal `{invocation.principal}`.")
        console.hint("install one with `aos capsule install FILE.capsule`")
    elif console.verbosity:
        console.data(render_capsule_details(entries))
    else:
        console.data(render_capsule_list(entries, width=console.width))
    broken = [entry for entry in entries if isinstance(entry, Broken)]
    if broken:
        console.warn(f"{plural(len(broken), 'capsule')} cannot be read")
        console.hint("install it again from its archive, or remove it with `aos capsule remove NAME`")


def show(name: Annotated[str, typer.Argument(metavar="NAME", help=CAPSULE_HELP)]) -> int:
    """Show one installed capsule: versions, origin, tools, permissions, topics, env.

    Everything is compared with what was approved at install; a difference is shown and the exit status is
    1. Values of secrets are never shown. JSON: {name, version, source, wasm_hash, installed_at,
    updated_at, manifest, permissions, intact, ...}.

    Examples:
      aos capsule show my-capsule
      aos capsule show my-capsule --json
    """
    console, invocation = get_console(), get_invocation()
    home, principal = invocation.home, invocation.principal
    open_home(home, create=False)
    installed = read_installed(home, principal, parse_installed_name(home, principal, name))
    problem = None
    try:
        check_installed(home, installed)
    except Corrupt as error:
        problem = error.message
    env = _shown_env(installed)
    if console.is_json:
        text = read_bounded(installed.generation / MANIFEST_FILE, MAX_MANIFEST_BYTES).decode(
            "utf-8", "replace"
        )
        console.json(show_document(installed, manifest_text=text, env=env, problem=problem))
    else:
        console.data(render_capsule(installed, env=env, problem=problem))
    return 0 if problem is None else 1


def _shown_env(installed: Installed) -> Mapping[str, str]:
    """Each `[env]` key with its value; a secret shows only whether it is set."""
    home = get_invocation().home
    stored = read_env(home, installed.principal, installed.name)
    secrets = set(list_secrets(home, installed.principal, installed.name))
    shown: dict[str, str] = {}
    for row in installed.manifest.env:
        if row.is_secret:
            shown[row.key] = "(secret, set)" if row.key in secrets else "(secret, not set)"
        elif row.key in stored:
            shown[row.key] = str(stored[row.key])
        elif row.default is not None:
            shown[row.key] = f"{row.default} (default)"
        else:
            shown[row.key] = "(not set)"
    return shown
