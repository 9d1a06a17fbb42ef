"""Every expected failure of aos, as data.

This room imports nothing of aos.  An error never draws itself: each edge owns its projection (exit status in
`aos_cli.app`, wire frame in `wire`, WIT error arm in `host`).  `docs/errors.md` lists every code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One thing wrong with an input.  `line` and `column` count from 1; None where the input has no lines."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None

    def render(self) -> str:
        """`file:line:column: message`, with the parts that are known."""
        at = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{at}: {self.message}" if at else self.message


class AosError(Exception):
    """An expected failure.

    `code` is permanent and kebab-case; `message` is one sentence without a final period; `hint` says what to
    do next; `context` holds the values that a program would want (JSON-serialisable).
    """

    def __init__(self, code: str, message: str, *, hint: str, **context: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.context = context

    def __str__(self) -> str:
        return self.message


class InvalidInput(AosError):
    """The caller's input is wrong.  Carries all issues, not only the first."""

    def __init__(
        self, code: str, message: str, *, hint: str, issues: Iterable[Issue] = (), **context: object
    ) -> None:
        super().__init__(code, message, hint=hint, **context)
        self.issues = tuple(issues)


class NotFound(AosError):
    """What was named does not exist."""


class Conflict(AosError):
    """The state that was found forbids the operation; nothing was changed."""


class Denied(AosError):
    """Policy says no.  The hint is the manifest line or the grant that would allow it."""


class Corrupt(AosError):
    """Stored or received bytes are not what their digest, signature or format promises."""


class BuildFailed(AosError):
    """A tool of the build chain failed; its own output has been shown."""


class Unavailable(AosError):
    """Something needed is not there now: the daemon, a program, the network, disk space."""


class LimitExceeded(AosError):
    """A stated bound was passed: size, depth, time, count."""


class PeerFault(AosError):
    """The other side of a connection broke the protocol."""
