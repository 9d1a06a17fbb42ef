"""The wall of names: which paths may stand together in one archive.

A name is refused where it leaves the folder, where some file system takes it for another one of the same
archive, and where it would pose as something that only the store writes.  No byte of an entry is looked at
here.
Source: cases ARC-01, ARC-05 and INS-28.
"""

from __future__ import annotations

from typing import Literal

from aos_runtime.capsule.archive_limits import DEFAULT_LIMITS
from aos_runtime.capsule.paths import folded, path_problem, without_dots
from aos_runtime.errors import InvalidInput, LimitExceeded

MANIFEST_FILE = "Capsule.toml"
STORE_FILES = ("meta.json", "authority.json")
"""Names at the root that only the store writes beside an installed capsule."""

_Kind = Literal["file", "folder", "parent"]


def decode_path(name: bytes) -> str:
    """The path of an entry: strict UTF-8, without `.` segments; empty for the archive's root.

    InvalidInput `archive-path` where it may not be in a capsule.
    """
    shown = name.decode("utf-8", "backslashreplace")
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _bad_path(shown, "is not UTF-8") from error
    path = without_dots(text)
    problem = path_problem(path) if path else None
    if problem is not None or not text:
        raise _bad_path(shown, problem or "is empty")
    return path


class NameWall:
    """The names of one archive, as they come; `limit` is the most entries that it may have."""

    def __init__(self, limit: int = DEFAULT_LIMITS.entries) -> None:
        self._seen: dict[str, tuple[str, _Kind]] = {}
        self._limit = 2 * limit

    def admit(self, path: str, kind: Literal["file", "folder"]) -> None:
        """Let `path` in.

        InvalidInput `archive-duplicate`, `archive-collision`, `archive-second-manifest` or
        `archive-reserved`; LimitExceeded `archive-too-many-names` where folders that no entry names come to
        as many again.
        """
        _check_reserved(path)
        segments, keys = path.split("/"), folded(path).split("/")
        for depth in range(1, len(segments)):
            self._admit("/".join(segments[:depth]), "/".join(keys[:depth]), "parent")
        self._admit(path, "/".join(keys), kind)
        if len(self._seen) > self._limit:
            raise LimitExceeded(
                "archive-too-many-names",
                f"the archive has more than {self._limit} files and folders",
                hint="ship fewer files in assets/",
                limit=self._limit,
            )

    def _admit(self, path: str, key: str, kind: _Kind) -> None:
        before, before_kind = self._seen.get(key, (path, None))
        if before != path:
            raise InvalidInput(
                "archive-collision",
                f"the archive's entries {before!a} and {path!a} are one name on some file systems",
                hint="rename one of them",
                entries=[before, path],
            )
        if before_kind is None or (kind == "folder" and before_kind == "parent"):
            self._seen[key] = (path, kind)
        elif kind != "parent" or before_kind == "file":
            raise InvalidInput(
                "archive-duplicate",
                f"the archive has two entries for {path!a}",
                hint="the archive is hostile or broken: do not install it",
                entry=path,
            )


def _check_reserved(path: str) -> None:
    if path in STORE_FILES:
        raise InvalidInput(
            "archive-reserved",
            f"the archive's entry {path!a} has a name that only the runtime writes",
            hint="rename it, or put it into assets/",
            entry=path,
        )
    if path != MANIFEST_FILE and folded(path.rpartition("/")[2]) == folded(MANIFEST_FILE):
        raise InvalidInput(
            "archive-second-manifest",
            f"the archive's entry {path!a} looks like a second manifest",
            hint=f"a capsule has one {MANIFEST_FILE}, spelled like this, at its root",
            entry=path,
        )


def _bad_path(shown: str, problem: str) -> InvalidInput:
    name = ascii(shown if len(shown) <= 120 else shown[:120] + "…")
    return InvalidInput(
        "archive-path",
        f"the archive's entry {name} {problem}",
        hint="an archive holds plain relative paths only: do not install this one",
        entry=shown[:1024],
    )
