"""Columns that line up on a terminal: widths in cells, not in characters.  Pure.

Wide East Asian and emoji glyphs take two cells, combining marks and joiners none; a cell never holds a line
break, and truncation never cuts a glyph (cases LST-06, LST-11).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_SGR = re.compile(r"\x1b\[[0-9;]*m")
_ZERO_WIDTH = frozenset("\u200b\u200c\u200d\u2060\ufe0e\ufe0f")
_JOINER = "\u200d"
_GAP = "  "
_ELLIPSIS = "…"
_MIN_COLUMN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column: its heading, and whether it may be cut where the terminal is narrow."""

    title: str
    flexible: bool = False
    align_right: bool = False


def clusters(text: str) -> Iterator[str]:
    """Split `text` into glyphs: a base character with the marks and joined parts that follow it."""
    current = ""
    for character in text:
        joined = current.endswith(_JOINER)
        extends = unicodedata.combining(character) != 0 or character in _ZERO_WIDTH or _is_modifier(character)
        if current and not (extends or joined):
            yield current
            current = ""
        current += character
    if current:
        yield current


def _is_modifier(character: str) -> bool:
    return "\U0001f3fb" <= character <= "\U0001f3ff" or unicodedata.category(character) in ("Mn", "Me")


def display_width(text: str) -> int:
    """Cells that `text` takes on a terminal; colour codes take none."""
    plain = _SGR.sub("", text)
    if plain.isascii():
        return len(plain)
    return sum(_cluster_width(cluster) for cluster in clusters(plain))


def _cluster_width(cluster: str) -> int:
    if "\ufe0f" in cluster or _JOINER in cluster:
        return 2
    base = cluster[0]
    if unicodedata.combining(base) or base in _ZERO_WIDTH or unicodedata.category(base) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(base) in ("W", "F") else 1


def truncate(text: str, width: int) -> str:
    """`text` in at most `width` cells, ending in an ellipsis where it was cut."""
    if display_width(text) <= width:
        return text
    kept, used = "", 0
    for cluster in clusters(text):
        used += _cluster_width(cluster)
        if used > width - 1:
            break
        kept += cluster
    return kept.rstrip() + _ELLIPSIS


def one_line(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())


def render_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None = None, indent: str = ""
) -> str:
    """Headings and rows as lines without a trailing line feed.  `width` None never truncates."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [
        max([display_width(column.title), *(display_width(row[index]) for row in cells)])
        for index, column in enumerate(columns)
    ]
    if width is not None:
        widths = _fit(columns, widths, width - len(indent))
    titles = [column.title for column in columns]
    return "\n".join(indent + _line(columns, row, widths) for row in [titles, *cells])


def _fit(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Take what is too much from the flexible columns, widest first."""
    fitted = list(widths)
    while sum(fitted) + len(_GAP) * (len(fitted) - 1) > width:
        candidates = [
            index for index, column in enumerate(columns) if column.flexible and fitted[index] > _MIN_COLUMN
        ]
        if not candidates:
            break
        fitted[max(candidates, key=lambda index: fitted[index])] -= 1
    return fitted


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    parts = []
    for column, cell, width in zip(columns, row, widths, strict=True):
        text = truncate(cell, width) if column.flexible else cell
        padding = " " * (width - display_width(text))
        parts.append(padding + text if column.align_right else text + padding)
    return _GAP.join(parts).rstrip()
