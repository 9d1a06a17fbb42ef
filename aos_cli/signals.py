"""The signals that end a command: the first one unwinds it, a second one ends the process at once.

Either way no traceback is shown, whatever the command was doing, the telling of another failure included.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType

INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 143
ENDING = (signal.SIGINT, signal.SIGTERM)


class Terminated(BaseException):
    """SIGTERM arrived; unwinds like KeyboardInterrupt so that stages are dropped and children stopped."""


def unwind_on_signal() -> None:
    """From now on the first ending signal raises KeyboardInterrupt or Terminated."""
    _handle(_unwind)


def end_on_signal() -> None:
    """From now on an ending signal ends the process, as it does where nobody handles it."""
    _handle(signal.SIG_DFL)


def _unwind(number: int, frame: FrameType | None) -> None:
    end_on_signal()
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def _handle(action: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell's background job stays deaf to Ctrl-C
            signal.signal(number, action)
