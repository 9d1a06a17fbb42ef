"""What a guest's path means, and whether its capsule may read or write there.  Text in, decision out.

A path names a place below one of three roots; what the roots are on this machine is not known here.  Source:
host-abi.md 6.1, architecture section 2 "What a guest can reach".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from aos_runtime.policy.denial_line import render_denial

MAX_PATH_BYTES = 4096

Parts = tuple[str, ...]
"""The names from a root down; the root itself is empty."""


class Root(Enum):
    """Where a path starts.  The value is how a guest spells it."""

    WORKSPACE = "cwd://"
    HOME = "home://"
    SCRATCH = "/tmp"


@dataclass(frozen=True, slots=True)
class Place:
    """A file or folder as a guest means it."""

    root: Root
    parts: Parts

    def render(self) -> str:
        """The path that a guest can use to come back here."""
        below = "/".join(self.parts)
        if self.root is Root.SCRATCH:
            return f"{self.root.value}/{below}" if below else self.root.value
        return f"{self.root.value}{below}"


def parse_place(path: str) -> Place | None:
    """The place that `path` names; None where it is no path: `..`, control characters, too long.

    Anything without a scheme of ours lies in the workspace, `/etc/x` and `other://x` too.  Empty names and
    `.` mean nothing; nothing is percent-decoded.
    """
    if _CONTROL.search(path) or len(path.encode()) > MAX_PATH_BYTES:
        return None
    root, below = _split(path)
    parts = _parts(below)
    return None if ".." in parts else Place(root, parts)


class FileGate:
    """The entries of `fs_read` or `fs_write`.  An empty list allows nothing."""

    __slots__ = ("_rules",)

    def __init__(self, entries: Iterable[str]) -> None:
        self._rules = tuple(rule for entry in entries if (rule := _rule(entry)) is not None)

    def covers(self, root: Root, parts: Parts, base: Parts | None) -> bool:
        """Whether an entry allows this place.

        `base` are the names from `/` down to the root, as literal entries see it; None where no literal entry
        reaches it.
        """
        return any(where[: len(names)] == names for names, where in self._compared(root, parts, base))

    def touches(self, root: Root, parts: Parts, base: Parts | None) -> bool:
        """Whether an entry allows this place, or one below it."""
        return any(
            where[: len(names)] == names or names[: len(where)] == where
            for names, where in self._compared(root, parts, base)
        )

    def _compared(self, root: Root, parts: Parts, base: Parts | None) -> Iterable[tuple[Parts, Parts]]:
        """The names of each rule that speaks of this root, with the place as that rule sees it."""
        for where, names in self._rules:
            if where is root:
                yield names, parts
            elif where is None and base is not None:
                yield names, base + parts


def home_shows(parts: Parts, via: Parts) -> bool:
    """Whether a guest sees this place of its principal's home.  `via` is the path that it named.

    `.config/env` and `.local` are the runtime's; of them `.local/capsules` can be read.  An installed capsule
    there is a link into `.local/generations`, which nothing else may lead to.
    """
    top = _folded(parts, 2)
    if top == (".config", "env"):
        return False
    if top[:1] != (".local",) or len(top) == 1:
        return True
    return top[1] == "capsules" or (top[1] == "generations" and _folded(via, 2) == (".local", "capsules"))


def home_named(parts: Parts) -> Parts:
    """How a guest names this place of its principal's home, which entries speak of.

    An installed capsule is `.local/capsules/<name>` for it, whatever folder of `.local/generations` that is.
    """
    if _folded(parts, 2) != (".local", "generations") or len(parts) < 4:
        return parts
    return (parts[0], "capsules", parts[2], *parts[4:])


def home_takes(parts: Parts) -> bool:
    """Whether a guest may write at this place of its principal's home: not what the runtime keeps there.

    Of `.config` it keeps the folder itself and `env`; capsules have their settings beside it.
    """
    top = _folded(parts, 2)
    if top[:1] == (".config",):
        return len(top) == 2 and top[1] != "env"
    return top[:1] not in ((".local",), ("wit",))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDenial:
    """One refused file operation, for the log of the capsule."""

    operation: str
    path: str
    rule: str
    allow: str | None = None
    """The entry of `[capabilities]` that would allow it, None where none would."""

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        return self.operation, self.path, self.rule

    def render(self, *, repeated: int = 0) -> str:
        """One line for the capsule's log (`policy.denial_line`)."""
        named = ("path", self.path)
        return render_denial(self.operation, named, self.rule, case=None, allow=self.allow, repeated=repeated)


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _split(path: str) -> tuple[Root, str]:
    for root in (Root.WORKSPACE, Root.HOME):
        if path.startswith(root.value):
            return root, path[len(root.value) :]
    if path == Root.SCRATCH.value or path.startswith(f"{Root.SCRATCH.value}/"):
        return Root.SCRATCH, path[len(Root.SCRATCH.value) :]
    return Root.WORKSPACE, path


def _parts(below: str) -> Parts:
    return tuple(name for name in below.split("/") if name not in ("", "."))


def _rule(entry: str) -> tuple[Root | None, Parts] | None:
    """The root and names that an entry allows; no root for a literal one.  None where it allows nothing."""
    if entry == "*":
        return Root.WORKSPACE, ()
    for root in (Root.WORKSPACE, Root.HOME):
        if entry.startswith(root.value):
            parts = _parts(entry[len(root.value) :])
            return None if ".." in parts else (root, parts)
    parts = _parts(entry)
    return (None, parts) if entry.startswith("/") and ".." not in parts else None


def _folded(parts: Parts, count: int) -> Parts:
    """The first names, without case: some file systems take `.Config` for `.config`."""
    return tuple(name.casefold() for name in parts[:count])
