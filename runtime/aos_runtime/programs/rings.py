"""What a child has written: one bounded buffer a stream, addressed by offset.

Two kinds of readers share it.  `drain` gives what no drain gave before, as text; `since` gives bytes from any
offset on and takes nothing away.  What falls out before anybody has read it is counted.  Nothing here locks:
its child does.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple


class Chunk(NamedTuple):
    """A part of a stream.  `dropped` bytes before it are lost, `next_offset` is where to go on."""

    data: bytes
    next_offset: int
    dropped: int


class Ring:
    """The last `limit` bytes of a stream.

    With backpressure nothing unread is dropped: `room` says 0, and whoever adds more has it kept.
    """

    __slots__ = (
        "_data",
        "_decoder",
        "_drained",
        "_has_backpressure",
        "_read_to",
        "dropped",
        "is_ended",
        "limit",
        "start",
    )

    def __init__(self, limit: int, *, has_backpressure: bool = False) -> None:
        self.limit = limit
        self.start = 0
        """The offset of the oldest byte that is kept."""
        self.dropped = 0
        """Bytes that fell out before anybody had read them."""
        self.is_ended = False
        """Nothing will be added any more."""
        self._data = bytearray()
        self._drained = 0
        self._read_to = 0
        self._has_backpressure = has_backpressure
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def end(self) -> int:
        """The offset after the newest byte."""
        return self.start + len(self._data)

    @property
    def unread(self) -> int:
        """Bytes that a drain would give."""
        return self.end - max(self._drained, self.start)

    def room(self) -> int:
        """How many bytes may be added now."""
        if not self._has_backpressure:
            return self.limit
        return max(0, self.limit - (self.end - max(self.start, self._read_to)))

    def add(self, data: bytes) -> None:
        """Keep `data`, at the cost of the oldest."""
        self._data += data
        excess = len(self._data) - self.limit
        if self._has_backpressure:
            excess = min(excess, self._read_to - self.start)
        if excess > 0:
            self.dropped += max(0, self.start + excess - max(self.start, self._read_to))
            del self._data[:excess]
            self.start += excess

    def drain(self) -> str:
        """What no drain gave before; a character that is not whole yet is left for the next.

        What was lost in between is said in the text: whoever reads it has nothing else to see that by.
        """
        lost = self.start - self._drained
        data = bytes(self._data[max(self._drained, self.start) - self.start :])
        self._drained = self._read_to = self.end
        text = self._decoder.decode(data, self.is_ended)
        return f"... {lost} bytes left out ...\n{text}" if lost > 0 else text

    def since(self, offset: int | None, max_bytes: int) -> Chunk:
        """Up to `max_bytes` from `offset` on, None: from the oldest that is kept."""
        wanted = self.start if offset is None else min(offset, self.end)
        at = max(wanted, self.start)
        data = bytes(self._data[at - self.start : at - self.start + max_bytes])
        after = at + len(data)
        self._read_to = max(self._read_to, after)
        return Chunk(data, after, at - wanted)
