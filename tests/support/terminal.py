"""A program on a terminal of its own, typed into as a person would."""

from __future__ import annotations

import os
import pty
import select
import time
from collections.abc import Mapping, Sequence

_QUIET_S = 0.4
_DEADLINE_S = 20.0


def type_into(
    command: Sequence[str], texts: Sequence[str], *, until: str, environ: Mapping[str, str] | None = None
) -> str:
    """Run `command`, type each text once the screen is quiet, and return what the screen got.

    Ends when `until` came, the program ended or 20 seconds passed; the program is killed then.
    """
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update({"TERM": "dumb", "PS1": "$ ", "PROMPT": "$ ", **(environ or {})})
        os.execvp(command[0], list(command))
    screen = b""
    try:
        end = time.monotonic() + _DEADLINE_S
        waiting = list(texts)
        while until.encode() not in screen and time.monotonic() < end:
            readable, _, _ = select.select([terminal], [], [], _QUIET_S)
            if readable:
                data = os.read(terminal, 65536)
                if not data:
                    break
                screen += data
            elif waiting:
                os.write(terminal, waiting.pop(0).encode())
    except OSError:  # the program ended and its side of the terminal with it
        pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return screen.decode("utf-8", "replace")


def answer_on_cue(
    command: Sequence[str],
    cues: Sequence[tuple[str, str]],
    *,
    until: str,
    environ: Mapping[str, str] | None = None,
    deadline_s: float = 60.0,
) -> str:
    """As `type_into`, but each text is typed when its cue came on the screen after what was typed before."""
    child, terminal = pty.fork()
    if child == 0:
        os.environ.update({"TERM": "dumb", "PS1": "$ ", "PROMPT": "$ ", **(environ or {})})
        os.execvp(command[0], list(command))
    screen, seen = b"", 0
    try:
        end = time.monotonic() + deadline_s
        waiting = list(cues)
        while until.encode() not in screen and time.monotonic() < end:
            readable, _, _ = select.select([terminal], [], [], _QUIET_S)
            if readable:
                data = os.read(terminal, 65536)
                if not data:
                    break
                screen += data
            found = screen.find(waiting[0][0].encode(), seen) if waiting else -1
            if found >= 0:
                cue, text = waiting.pop(0)
                seen = found + len(cue.encode())
                os.write(terminal, text.encode())
    except OSError:  # the program ended and its side of the terminal with it
        pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)
        os.close(terminal)
    return screen.decode("utf-8", "replace")
