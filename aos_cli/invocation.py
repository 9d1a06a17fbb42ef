"""What one run of `aos` was asked besides its command: home, principal, where the user stands.

Filled by the global options (`aos_cli.lazy`) and read by commands.  It resolves names and paths and never
touches the disk: a read-only command may run with no home at all.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from aos_cli import environment
from aos_cli.console import Console, get_console
from aos_runtime.home import Home, resolve_home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName, parse_principal_name


@dataclass(slots=True, kw_only=True)
class Invocation:
    """One run.  `principal_option` is what `--principal` said; the environment stands in for it."""

    environ: Mapping[str, str]
    principal_option: str | None = None

    @property
    def home(self) -> Home:
        """The home that the environment names (InvalidInput `home-unset`, `home-relative`)."""
        return resolve_home(self.environ)

    @property
    def principal(self) -> PrincipalName:
        """`--principal`, then AOS_PRINCIPAL, then ASTRID_PRINCIPAL, then `default`."""
        for text in (
            self.principal_option,
            self.environ.get(environment.PRINCIPAL),
            self.environ.get(environment.PRINCIPAL_FALLBACK),
        ):
            if text:
                return parse_principal_name(text)
        return DEFAULT_PRINCIPAL

    @property
    def console(self) -> Console:
        return get_console()


_current: Invocation | None = None


def set_invocation(invocation: Invocation) -> None:
    """Make `invocation` the one that commands read.  Called by `app`, and by tests."""
    global _current
    _current = invocation


def get_invocation() -> Invocation:
    """The invocation of this run (one of the process environment where `app` has not made one)."""
    global _current
    if _current is None:
        _current = Invocation(environ=os.environ)
    return _current
