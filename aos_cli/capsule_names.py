"""Names of installed capsules as a user types them: checked before they touch a path, with near matches."""

from __future__ import annotations

from aos_cli.suggest import did_you_mean, nearest_names
from aos_runtime.errors import NotFound
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, PrincipalName, parse_capsule_name
from aos_runtime.store.installed import list_names


def parse_installed_name(home: Home, principal: PrincipalName, text: str) -> CapsuleName:
    """A name that is installed.  InvalidInput `capsule-name`, NotFound `capsule-not-installed`."""
    name = parse_capsule_name(text)
    known = list_names(home, principal)
    if name not in known:
        raise unknown_capsule(principal, name, known)
    return name


def unknown_capsule(principal: PrincipalName, name: str, known: tuple[CapsuleName, ...]) -> NotFound:
    """The error for a capsule that is not there, with the nearest names."""
    near = nearest_names(name, known)
    return NotFound(
        "capsule-not-installed",
        f"capsule `{name}` is not installed for principal `{principal}`",
        hint=did_you_mean(near) or "run `aos capsule list` to see what is",
        name=name,
        principal=principal,
        nearest=list(near),
    )
