"""The text of a manifest: from bytes to TOML values with positions, and syntax errors that an author can use.

Knows TOML and the two mistakes that authors make most (the guide's damaged row, a table written twice); knows
no key of a manifest.
Source: cases MAN-01 and MAN-12.
"""

from __future__ import annotations

import re
import tomllib

from aos_runtime.capsule.toml_positions import Duplicate, KeyPositions, Position, render_path, scan_positions
from aos_runtime.errors import InvalidInput, Issue

MAX_MANIFEST_BYTES = 256 * 1024

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_TOMLLIB_PLACE = re.compile(r" ?\(at (?:line (?P<line>[0-9]+), column (?P<column>[0-9]+)|end of document)\)$")
_NO_TOPIC = re.compile(r"[ \t]*=[ \t]*[{\"']")
_GUIDE_ROW = re.compile(r"[ \t]*=[ \t]*\{[ \t]*wit[ \t]*=[ \t]*,[ \t]*handler[ \t]*=[ \t]*\}")
_MEANT_ROW = (
    '"tool.v1.request.describe" = '
    '{ wit = "@unicity-astrid/wit/tool/describe-request", handler = "tool_describe" }'
)


def load_toml(data: bytes, *, file: str) -> tuple[dict[str, object], KeyPositions]:
    """Values and positions of a manifest's bytes; a byte order mark and CRLF are taken as they come.

    InvalidInput `manifest-too-large`, `manifest-encoding` or `manifest-syntax`.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise InvalidInput(
            "manifest-too-large",
            f"{file} is larger than {MAX_MANIFEST_BYTES // 1024} KiB",
            hint="move data into assets/ and keep the manifest to what the runtime reads",
            size_bytes=len(data),
        )
    text = _decode(data.removeprefix(_BYTE_ORDER_MARK), file)
    positions = scan_positions(text)
    if positions.too_deep is not None:
        raise _syntax(file, _issue("the value is nested too deeply", file, positions.too_deep))
    try:
        return tomllib.loads(text), positions
    except ValueError as error:  # TOMLDecodeError, and int() on too many digits
        raise _syntax(file, *_explain(str(error), text, positions, file)) from error


def printable(text: str) -> str:
    """`text` with every character escaped that could move a cursor, hide or reorder what is shown."""
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)


def _decode(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        raise InvalidInput(
            "manifest-encoding",
            f"{file} is not UTF-8 text",
            hint="save the file as UTF-8",
            issues=(Issue(message="not UTF-8 text", file=file, line=line, column=column),),
            file=file,
        ) from error


def _explain(message: str, text: str, positions: KeyPositions, file: str) -> tuple[Issue, ...]:
    if positions.duplicates:
        return tuple(_duplicate_issue(duplicate, file) for duplicate in positions.duplicates)
    match = _TOMLLIB_PLACE.search(message)
    words = message[: match.start()] if match else message
    lines = text.split("\n")
    if match is None or match["line"] is None:
        line, column = len(lines), len(lines[-1]) + 1
    else:
        line, column = int(match["line"]), int(match["column"])
    return (_syntax_issue(words, lines[line - 1], file, line, column),)


def _syntax_issue(words: str, row: str, file: str, line: int, column: int) -> Issue:
    shown = row.strip()[:120]
    message, hint = f"not valid TOML: {words[:1].lower()}{words[1:]}, in the row `{shown}`", None
    if _NO_TOPIC.match(row):
        message, hint = (
            f"the row `{shown}` has no topic before its `=`",
            "write the topic in quotes before the `=`",
        )
    if _GUIDE_ROW.match(row):
        hint = f"the row that was meant is `{_MEANT_ROW}`"
    return _issue(message, file, Position(line=line, column=column), hint)


def _duplicate_issue(duplicate: Duplicate, file: str) -> Issue:
    what = "table" if duplicate.is_table else "key"
    first, second = duplicate.first.line, duplicate.second.line
    where = f"in line {first} and in line {second}" if first != second else f"in line {first}"
    message = f"the {what} `{render_path(duplicate.path)}` stands twice: {where}"
    return _issue(message, file, duplicate.second, "keep one of the two")


def _issue(message: str, file: str, place: Position, hint: str | None = None) -> Issue:
    return Issue(message=printable(message), file=file, line=place.line, column=place.column, hint=hint)


def _syntax(file: str, *issues: Issue) -> InvalidInput:
    return InvalidInput(
        "manifest-syntax",
        issues[0].message if len(issues) == 1 else f"{file} has {len(issues)} problems",
        hint=(issues[0].hint if len(issues) == 1 else None) or f"correct {file} at the place shown",
        issues=issues,
        file=file,
    )
