"""The signals that end a command, as exceptions that unwind it."""

from __future__ import annotations

INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 143


class Terminated(BaseException):
    """SIGTERM arrived; unwinds like KeyboardInterrupt so that stages are dropped and children stopped."""
