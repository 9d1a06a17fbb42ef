"""A line on a terminal that says what is being waited for, and for how long.

Used by `console` only, and only where stderr is a terminal.  It draws from its own thread so that the work
that it describes needs no callbacks, and leaves no trace when it ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES = "|/-\\"
_INTERVAL_S = 0.1
_ELAPSED_AFTER_S = 2.0


class Spinner:
    """Context manager that animates `label` on `stream` (a terminal) until the block ends."""

    def __init__(self, stream: TextIO, label: str) -> None:
        self._stream = stream
        self._label = label
        self._frames = _FRAMES if "utf" in (stream.encoding or "").lower() else _ASCII_FRAMES
        self._done = threading.Event()
        self._drawing = threading.Lock()
        self._thread = threading.Thread(target=self._draw, name="aos-spinner", daemon=True)
        self._started = time.monotonic()

    def __enter__(self) -> Spinner:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join(timeout=1.0)
        self._stream.write("\r\x1b[K")
        self._stream.flush()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Leave an empty line and draw nothing until the block ends."""
        with self._drawing:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            yield

    def _draw(self) -> None:
        index = 0
        while not self._done.wait(_INTERVAL_S):
            elapsed_s = time.monotonic() - self._started
            tail = f" {elapsed_s:.0f}s" if elapsed_s >= _ELAPSED_AFTER_S else ""
            with self._drawing:
                self._stream.write(f"\r\x1b[K{self._frames[index % len(self._frames)]} {self._label}{tail}")
                self._stream.flush()
            index += 1
