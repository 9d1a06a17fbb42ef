"""How a guest call can end badly, as values.

A trap kills its instance and nothing else.  The text that leaves this room names the cause in a few words
and never carries a wasm backtrace; the full text goes to the log port of the instance that trapped.
"""

from __future__ import annotations

from enum import StrEnum


class TrapReason(StrEnum):
    """Why the guest was stopped."""

    TRAP = "trap"
    """The guest's own fault: a panic, a bad access, a broken canonical ABI."""
    FUEL = "fuel"
    """It used more instructions than one call may."""
    DEADLINE = "deadline"
    """It ran longer than one call may."""
    CANCELLED = "cancelled"
    """Nobody waits for the call any more."""
    MEMORY = "memory"
    """It asked for more memory than an instance may have."""
    HOST = "host"
    """A bug of ours: a host function raised.  The cause is chained to the exception."""


STOPPED_PREFIX = "stopped ("
"""How the host's own line about the end of an instance begins in the log of its capsule."""


class GuestTrap(Exception):
    """A guest call did not return; the instance is dead and must be dropped.

    `message` is one line, fit for a caller; `detail` is everything wasmtime said, fit for a log.
    """

    def __init__(self, reason: TrapReason, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.detail = detail or message
