"""Read one line from the terminal with echo off.

`getpass` falls back to an echoing read with a warning where it cannot turn echo off, which shows the secret
(cases INS-12); this one refuses instead.  The value is never logged, nor part of any error.
"""

from __future__ import annotations

import os
import termios

from aos_runtime.errors import Unavailable

_MAX_BYTES = 64 * 1024


def read_hidden_line(prompt: str) -> str:
    """The line typed at the controlling terminal; Unavailable `no-hidden-input` where echo stays on."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        before = termios.tcgetattr(terminal)
    except (OSError, termios.error) as error:
        raise Unavailable(
            "no-hidden-input",
            "cannot read a secret here: there is no terminal whose echo can be turned off",
            hint="set AOS_VAR_<KEY> in the environment instead",
        ) from error
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    try:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, quiet)
        os.write(terminal, prompt.encode())
        line = _read_line(terminal)
        os.write(terminal, b"\n")
    finally:
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
        os.close(terminal)
    return line


def _read_line(terminal: int) -> str:
    data = b""
    while not data.endswith(b"\n") and len(data) < _MAX_BYTES:
        chunk = os.read(terminal, 4096)
        if not chunk:
            break
        data += chunk
    return data.rstrip(b"\r\n").decode("utf-8", "replace")
