"""Where in a TOML text each key stands, and which keys stand there twice.

`tomllib` gives values without positions and names a duplicate without its first place.  This scanner reads
the same text for its shape only: it never builds a value, never rejects what TOML allows and stops where it
cannot follow, so the positions up to a syntax error are known.  Time is linear in the text and nesting is
bounded, which also keeps hostile nesting away from `tomllib`'s recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

KeyPath = tuple[str | int, ...]
"""Keys from the root; an element of an array of tables, or of an array of inline tables, is its index."""

MAX_DEPTH = 32
"""Deepest nesting of arrays and inline tables, and the most parts of a dotted key."""

_BLANK = re.compile(r"[ \t]*")
_BETWEEN = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_BARE = re.compile(r"[^\s.=\[\]{},\"'#]+")
_BASIC = re.compile(r'"((?:[^"\\\n]|\\[^\n])*)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*"""(?:"(?!"))?(?:""(?!"))?')
_LONG_LITERAL = re.compile(r"'''(?:[^']|'(?!''))*'''(?:'(?!'))?(?:''(?!'))?")
_SCALAR = re.compile(r"[^\s,\]}#][^,\]}#\n]*")
_ESCAPE = re.compile(r'\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[btnfr"\\])')
_SHORT_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the text; both count from 1, columns in characters."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate:
    """A key or table that stands in the text twice."""

    path: KeyPath
    is_table: bool
    first: Position
    second: Position


@dataclass(slots=True)
class KeyPositions:
    """The positions of a text's keys.  `too_deep` is where nesting passed MAX_DEPTH, else None."""

    places: dict[KeyPath, Position] = field(default_factory=dict)
    duplicates: list[Duplicate] = field(default_factory=list)
    too_deep: Position | None = None

    def find(self, path: KeyPath) -> Position | None:
        """The position of `path`, or of the nearest part above it that has one."""
        for length in range(len(path), 0, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return place
        return None


def scan_positions(text: str) -> KeyPositions:
    """Scan `text`, as far as it can be followed."""
    scanner = _Scanner(text)
    try:
        scanner.document()
    except _LostError:
        pass
    except _TooDeepError:
        scanner.found.too_deep = scanner.position(scanner.at)
    return scanner.found


def render_path(path: KeyPath) -> str:
    """A key path as an author writes it: `component[0].file`, quoted where a key needs it."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else '"' + part.replace('"', '\\"') + '"'
        text += f".{shown}" if text else shown
    return text


class _LostError(Exception):
    """The text is not TOML from here on."""


class _TooDeepError(Exception):
    """Nesting passes MAX_DEPTH."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found = KeyPositions()
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._tables: dict[KeyPath, int] = {}
        self._declared: set[KeyPath] = set()

    def position(self, offset: int) -> Position:
        low, high = 0, len(self._line_starts)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._line_starts[middle] <= offset else (low, middle)
        return Position(line=low + 1, column=offset - self._line_starts[low] + 1)

    def document(self) -> None:
        table: KeyPath = ()
        self._skip(_BETWEEN)
        while self.at < len(self.text):
            if self.text.startswith("[", self.at):
                table = self._header()
            else:
                self._pair(table, 0)
            self._skip(_BETWEEN)

    def _header(self) -> KeyPath:
        start = self.at
        opening, closing = ("[[", "]]") if self.text.startswith("[[", self.at) else ("[", "]")
        self._take(opening)
        keys = self._key()
        self._take(closing)
        if opening == "[[":
            return self._next_element(keys, start)
        path = self._resolve(keys)
        self._record_parents((), path, start)
        self._record(path, start, is_table=True)
        return path

    def _next_element(self, keys: tuple[str, ...], start: int) -> KeyPath:
        path = self._resolve(keys[:-1]) + keys[-1:]
        self._record_parents((), path, start)
        index = self._tables.get(path, -1) + 1
        self._tables[path] = index
        if index == 0:
            self.found.places.setdefault(path, self.position(start))
        self.found.places[(*path, index)] = self.position(start)
        return (*path, index)

    def _resolve(self, keys: tuple[str, ...]) -> KeyPath:
        """A header's path, with the index of the latest element of each array of tables on the way."""
        path: KeyPath = ()
        for key in keys:
            path = (*path, key)
            if path in self._tables:
                path = (*path, self._tables[path])
        return path

    def _pair(self, table: KeyPath, depth: int) -> None:
        start = self.at
        keys = self._key()
        self._take("=")
        self._record_parents(table, keys, start)
        path = table + keys
        self._record(path, start, is_table=False)
        self._value(path, depth)

    def _record_parents(self, table: KeyPath, keys: KeyPath, start: int) -> None:
        """Tables that stand nowhere but in front of a dot are where they are first named."""
        for length in range(1, len(keys)):
            self.found.places.setdefault(table + keys[:length], self.position(start))

    def _record(self, path: KeyPath, start: int, *, is_table: bool) -> None:
        here = self.position(start)
        if path in self._declared:
            first = self.found.places[path]
            self.found.duplicates.append(Duplicate(path=path, is_table=is_table, first=first, second=here))
            return
        self._declared.add(path)
        self.found.places[path] = here

    def _key(self) -> tuple[str, ...]:
        parts = [self._key_part()]
        while self.text.startswith(".", self.at):
            self.at += 1
            parts.append(self._key_part())
            if len(parts) > MAX_DEPTH:
                raise _TooDeepError
        return tuple(parts)

    def _key_part(self) -> str:
        self._skip(_BLANK)
        for pattern in (_BASIC, _LITERAL, _BARE):
            match = pattern.match(self.text, self.at)
            if match is not None:
                self.at = match.end()
                self._skip(_BLANK)
                return _unescape(match[1]) if pattern is _BASIC else match[match.lastindex or 0]
        raise _LostError

    def _value(self, path: KeyPath, depth: int) -> None:
        self._skip(_BLANK)
        if depth >= MAX_DEPTH:
            raise _TooDeepError
        if self.text.startswith("[", self.at):
            self._array(path, depth + 1)
        elif self.text.startswith("{", self.at):
            self._inline_table(path, depth + 1)
        else:
            self._scalar()
        self._skip(_BLANK)

    def _array(self, path: KeyPath, depth: int) -> None:
        for index in self._items("[", "]", _BETWEEN):
            self.found.places[(*path, index)] = self.position(self.at)
            self._value((*path, index), depth)

    def _inline_table(self, path: KeyPath, depth: int) -> None:
        for _ in self._items("{", "}", _BETWEEN):
            self._pair(path, depth)

    def _items(self, opening: str, closing: str, between: re.Pattern[str]) -> Iterator[int]:
        """Walk a bracketed list; the caller consumes one item per step."""
        self._take(opening)
        index = 0
        while True:
            self._skip(between)
            if self.text.startswith(closing, self.at):
                self.at += 1
                return
            yield index
            index += 1
            self._skip(between)
            if not self.text.startswith(closing, self.at):
                self._take(",")

    def _scalar(self) -> None:
        for opening, pattern in (
            ('"""', _LONG_BASIC),
            ("'''", _LONG_LITERAL),
            ('"', _BASIC),
            ("'", _LITERAL),
            ("", _SCALAR),
        ):
            if self.text.startswith(opening, self.at):
                match = pattern.match(self.text, self.at)
                if match is None:
                    raise _LostError
                self.at = match.end()
                return

    def _take(self, token: str) -> None:
        if not self.text.startswith(token, self.at):
            raise _LostError
        self.at += len(token)

    def _skip(self, pattern: re.Pattern[str]) -> None:
        match = pattern.match(self.text, self.at)
        if match is not None:
            self.at = match.end()


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] in "uU":
            number = int(code[1:], 16)
            return chr(number) if number <= 0x10FFFF else match[0]
        return _SHORT_ESCAPES[code]

    return _ESCAPE.sub(replace, text)
