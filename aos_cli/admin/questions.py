"""Asking before something is gone for good."""

from __future__ import annotations

from aos_cli.console import Console
from aos_runtime.errors import Denied, Unavailable


def confirm_or_refuse(console: Console, question: str, *, yes: bool) -> None:
    """Go on with a yes.

    Unavailable `needs-yes` where nobody can answer and no `-y` was given, Denied `declined` for a no.
    """
    if yes:
        return
    if not console.interactive:
        raise Unavailable("needs-yes", f"nobody is there to answer: {question}", hint="pass -y to answer yes")
    if not console.confirm(question, False):
        raise Denied("declined", "nothing was changed", hint="answer y, or pass -y")
