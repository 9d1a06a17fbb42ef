"""`aos keypair ...`: the key pairs in a home, on disk; no daemon is needed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from aos_cli.console import get_console
from aos_cli.invocation import get_invocation
from aos_cli.render.admin import render_keypairs
from aos_runtime.errors import Unavailable
from aos_runtime.store.keypairs import (
    KeyPair,
    delete_keypair,
    generate_keypair,
    list_keypairs,
    openssh_text,
    read_keypair,
    wire_text,
)
from aos_runtime.store.layout import open_home

_Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of a key pair.")]
_FORMATS = ("hex", "openssh", "wire")


def generate(
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Its name (default: key-<8 digits>).")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", metavar="TEXT", help="What it is for.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a pair of that name.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print only the public key.")] = False,
) -> None:
    """Make an ed25519 key pair; the secret half stays in the home, readable by you alone.

    JSON: {name, fingerprint, created_at_epoch, backend, note, bound_principal, public_key}.

    Examples:
      aos keypair generate --name laptop --note "my laptop"
      aos keypair generate --raw
    """
    console = get_console()
    pair = generate_keypair(get_invocation().home, name, note=note, replace=force)
    if console.is_json:
        console.json(_document(pair))
    elif raw:
        console.data(pair.public_key)
    else:
        console.success(f"Made key pair {pair.name}.")
        console.data(f"{pair.name}  {pair.fingerprint}  {pair.public_key}")


def list_pairs() -> None:
    """List the key pairs: your own, and those of the principals.

    JSON: an array of {name, fingerprint, created_at_epoch, backend, note, bound_principal}.

    Examples:
      aos keypair list
      aos keypair list --json
    """
    console, home = get_console(), get_invocation().home
    open_home(home, create=False)
    pairs = list_keypairs(home)
    if console.is_json:
        console.json([pair.to_json() for pair in pairs])
    elif pairs:
        created = {pair.name: _created(pair) for pair in pairs}
        rows = [pair.to_json() for pair in pairs]
        console.data(render_keypairs(rows, created=created, width=console.width))
    else:
        console.note("No key pairs.")


def show(name: _Name) -> None:
    """Show one key pair, without its secret half.

    JSON: {name, fingerprint, created_at_epoch, backend, note, bound_principal, public_key}.

    Examples:
      aos keypair show default
    """
    console = get_console()
    pair = _read(name)
    if console.is_json:
        console.json(_document(pair))
        return
    lines = [
        f"Key pair {pair.name}",
        f"  Fingerprint:  {pair.fingerprint}",
        f"  Public key:   {pair.public_key}",
        f"  Created:      {_created(pair)}",
        f"  Note:         {pair.note or '—'}",
        f"  Principal:    {pair.bound_principal or '—'}",
    ]
    console.data("\n".join(lines))


def pubkey(
    name: _Name,
    form: Annotated[
        str, typer.Option("--as", metavar="FORM", help="hex, openssh, or wire (base64 of the 32 bytes).")
    ] = "hex",
) -> None:
    """Print the public key of a pair, and nothing else.

    JSON: {name, form, public_key}.

    Examples:
      aos keypair pubkey default
      aos keypair pubkey laptop --as openssh
    """
    console = get_console()
    if form not in _FORMATS:
        raise typer.BadParameter(f"{form!r} is not one of {', '.join(_FORMATS)}")
    pair = _read(name)
    text = {"hex": pair.public_key, "openssh": openssh_text(pair), "wire": wire_text(pair)}[form]
    if console.is_json:
        console.json({"name": pair.name, "form": form, "public_key": text})
    else:
        console.data(text)


def delete(
    name: _Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Needed: there is no way back.")] = False,
) -> None:
    """Delete a key pair for good; needs --yes. The key of a principal goes with the principal.

    JSON: {name, fingerprint}.

    Examples:
      aos keypair delete laptop --yes
    """
    console = get_console()
    if not yes:
        raise Unavailable("needs-yes", f"deleting key pair '{name}' cannot be undone", hint="pass --yes")
    pair = delete_keypair(get_invocation().home, name)
    if console.is_json:
        console.json({"name": pair.name, "fingerprint": pair.fingerprint})
    else:
        console.success(f"Deleted key pair {pair.name}.")


def _read(name: str) -> KeyPair:
    home = get_invocation().home
    open_home(home, create=False)
    return read_keypair(home, name)


def _document(pair: KeyPair) -> dict[str, object]:
    return {**pair.to_json(), "public_key": pair.public_key}


def _created(pair: KeyPair) -> str:
    return datetime.fromtimestamp(pair.created_at_epoch, UTC).strftime("%Y-%m-%d %H:%M")
