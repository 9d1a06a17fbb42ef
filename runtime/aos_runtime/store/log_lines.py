"""One log record as one line: `<unix seconds with 3 decimals> LEVEL [origin] message` (daemon-kernel.md 1.8).

A message cannot end its line, start another record or steer a terminal: control characters, line separators
and bidirectional marks are escaped, reversibly.  No I/O here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MAX_LINE_BYTES = 64 * 1024
DAEMON_ORIGIN = "_daemon"
"""The origin of the daemon's own records; no capsule can have that name."""

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR")

_UNSAFE = re.compile(
    "[\\\\\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_ESCAPE = re.compile(r"\\(?:(?P<short>[\\nrt])|x(?P<two>[0-9a-f]{2})|u(?P<four>[0-9a-f]{4}))")
_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG = {text[1]: char for char, text in _SHORT.items()}
_LINE = re.compile(
    r"(?P<time>\d{1,15}\.\d{3}) (?P<level>[A-Z]{1,8}) \[(?P<origin>[A-Za-z0-9_/-]{1,200})\] (?P<message>.*)",
    re.S,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record.  `message` is as it was logged: escape it before a terminal sees it.

    A line that is no record of ours has `is_parsed` False, its whole text as `message`, and the time of the
    record before it, so that a merge keeps it in its place.  `log` is the file that it was read from,
    whatever rotation it lies in.
    """

    time_s: float
    level: str
    origin: str
    message: str
    is_parsed: bool = True
    log: Path | None = None


def render_line(time_s: float, level: str, origin: str, message: str) -> bytes:
    """The line with its newline, at most MAX_LINE_BYTES bytes; a longer message is cut and says so."""
    head = f"{time_s:.3f} {level} [{origin}] "
    text = escape(message[:MAX_LINE_BYTES])
    line = f"{head}{text}\n".encode()
    if len(line) <= MAX_LINE_BYTES and len(message) <= MAX_LINE_BYTES:
        return line
    size = len(message.encode("utf-8", "surrogatepass"))
    mark = f" [truncated: {size} bytes]\n"
    return f"{head}{_cut(text, MAX_LINE_BYTES - len(head) - len(mark))}{mark}".encode()


def parse_line(line: bytes, *, after_s: float = 0.0, log: Path | None = None) -> Record:
    """Read one line without its newline; any bytes give a record, bad UTF-8 becomes U+FFFD."""
    text = line.decode("utf-8", "replace")
    match = _LINE.fullmatch(text)
    if match is None or match["level"] not in LEVELS:
        origin = "" if log is None else log.name.removesuffix(".log")
        return Record(time_s=after_s, level="INFO", origin=origin, message=text, is_parsed=False, log=log)
    return Record(
        time_s=float(match["time"]),
        level=match["level"],
        origin=match["origin"],
        message=unescape(match["message"]),
        log=log,
    )


def escape(text: str) -> str:
    """`text` on one line without anything that a terminal obeys; `unescape` gives it back."""
    return _UNSAFE.sub(_escape_one, text)


def unescape(text: str) -> str:
    """The inverse of `escape`; a backslash that starts no escape stays."""
    return _ESCAPE.sub(_unescape_one, text)


def _escape_one(match: re.Match[str]) -> str:
    char = match[0]
    code = ord(char)
    return _SHORT.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _unescape_one(match: re.Match[str]) -> str:
    if match["short"]:
        return _LONG[match["short"]]
    return chr(int(match["two"] or match["four"], 16))


def _cut(escaped: str, size_bytes: int) -> str:
    """The longest start of an escaped text that fits, cutting no character and no escape in two."""
    kept = escaped.encode()[:size_bytes].decode("utf-8", "ignore")
    tail = re.search(r"\\(?:x[0-9a-f]?|u[0-9a-f]{0,3})?\Z", kept)
    if tail is not None and _is_open(kept, tail.start()):
        kept = kept[: tail.start()]
    return kept


def _is_open(text: str, index: int) -> bool:
    """Whether the backslash at `index` starts an escape, that is, follows an even number of backslashes."""
    before = index
    while before > 0 and text[before - 1] == "\\":
        before -= 1
    return (index - before) % 2 == 0
