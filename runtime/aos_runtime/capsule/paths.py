"""Which relative paths a capsule may hold.

One rule for archive entries and for the files that a manifest names, so strict that a path means the same
file on every file system: no way out of the folder, no spelling that one system folds into another, no
device.  This room joins no path to a folder.
Source: cases ARC-01, ARC-05, INS-28, MAN-10; build-install.md 2.12, 5.4.
"""

from __future__ import annotations

import re
import unicodedata

MAX_PATH_BYTES = 1024
MAX_SEGMENT_BYTES = 255
MAX_PATH_SEGMENTS = 32

_DRIVE = re.compile(r"[A-Za-z]:")
_DEVICE = re.compile(r"con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3]", re.IGNORECASE)
_HIDDEN_CATEGORIES = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))


def path_problem(path: str) -> str | None:
    """Why `path` may not be in a capsule, as the end of a sentence; None where it may.

    `path` is relative, `/`-separated and already free of `.` segments (`without_dots`).
    """
    if not path:
        return "is empty"
    if path.startswith("/") or _DRIVE.match(path):
        return "is absolute"
    if "\\" in path:
        return "has a backslash"
    if any(unicodedata.category(char) in _HIDDEN_CATEGORIES for char in path):
        return "has a control or invisible character"
    if len(path.encode("utf-8")) > MAX_PATH_BYTES:
        return f"is longer than {MAX_PATH_BYTES} bytes"
    segments = path.split("/")
    if len(segments) > MAX_PATH_SEGMENTS:
        return f"is deeper than {MAX_PATH_SEGMENTS} folders"
    return next((problem for problem in map(_segment_problem, segments) if problem), None)


def without_dots(path: str) -> str:
    """`path` without its `.` segments: `./a/./b` is `a/b`, `.` is empty.  Nothing else is changed."""
    return "/".join(segment for segment in path.split("/") if segment != ".")


def folded(path: str) -> str:
    """A key that is equal for paths which some file system takes for one: case and Unicode form folded."""
    return unicodedata.normalize("NFD", unicodedata.normalize("NFD", path).casefold())


def _segment_problem(segment: str) -> str | None:
    if segment == "..":
        return "leaves the capsule's folder"
    if segment in ("", "."):
        return "has an empty segment"
    if segment[-1] in ". ":
        return "has a segment that ends in a dot or a space"
    if len(segment.encode("utf-8")) > MAX_SEGMENT_BYTES:
        return f"has a name longer than {MAX_SEGMENT_BYTES} bytes"
    if _DEVICE.fullmatch(segment.partition(".")[0].rstrip(" ")):
        return "is a device name on Windows"
    return None
