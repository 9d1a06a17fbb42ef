"""What stands behind the byte streams of astrid:io: the two ends that a port hands to a guest.

A port makes one, the table of resources holds it, the factors of astrid:io drive it.  Neither end ever
blocks; who must wait waits for the `source` of the end, and so sees every interrupt.  Errors are
`StreamFailed`, after which an end is closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from aos_runtime.host.readiness import Source

POLLABLE, INPUT_STREAM, OUTPUT_STREAM = "pollable", "input-stream", "output-stream"
"""The kinds in the table of resources, by their WIT names; a pollable's resource is a `Pollable`."""


class StreamFailed(Exception):
    """An operation did not succeed; the text says why, in our words, for the guest."""


class InputEnd(Protocol):
    """Bytes that come."""

    def read(self, size_bytes: int) -> bytes | None:
        """Up to so many bytes that are there now, empty where none are; None once there will be none."""
        ...

    def source(self) -> Source:
        """Ready where `read` gives bytes or None."""
        ...

    def close(self) -> None: ...


class OutputEnd(Protocol):
    """Bytes that go."""

    def permit(self) -> int | None:
        """How many bytes `write` takes now; None once it takes none any more."""
        ...

    def write(self, data: bytes) -> None:
        """Take at most `permit()` bytes."""
        ...

    def flush(self) -> bool:
        """Push what was taken; whether all of it is on its way now."""
        ...

    def source(self) -> Source:
        """Ready where `permit` is not 0, and what was taken is on its way."""
        ...

    def close(self) -> None: ...


class Pollable:
    """The resource of a source: closing it lets go, and ends nothing."""

    __slots__ = ("source",)

    def __init__(self, source: Source) -> None:
        self.source = source

    def close(self) -> None:
        return None


class Failure:
    """The resource of an error: what a stream says of the operation that failed."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def close(self) -> None:
        return None


class LentInput:
    """The input end of something that lives on: letting go of it closes nothing."""

    __slots__ = ("_end", "is_failed", "read", "source")

    def __init__(self, end: InputEnd) -> None:
        self._end = end
        self.is_failed = False
        self.read, self.source = end.read, end.source

    def close(self) -> None:
        return None


class LentOutput:
    """The output end of something that lives on: letting go of it closes nothing."""

    __slots__ = ("_end", "flush", "is_failed", "permit", "permitted", "source", "write")

    def __init__(self, end: OutputEnd, source: Callable[[], Source]) -> None:
        self._end = end
        self.is_failed = False
        self.permitted = 0
        """What the guest may write without asking again."""
        self.permit, self.write, self.flush, self.source = end.permit, end.write, end.flush, source

    def close(self) -> None:
        return None
