"""What a program behind bubblewrap sees of this machine, as the options of bubblewrap.

The machine read-only; an empty /tmp of its own; its own processes only; no rights, also where the daemon is
root.  Empty are the user's home, /run with the sockets of its session, and the aos home.  In these is shown
again what the program needs: the capsule's files, name resolution, and where the program itself is installed.

Source: architecture.md 2 ("What a guest can reach"), ADR 0012.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aos_runtime.errors import InvalidInput

SCRATCH = Path("/tmp")
_SESSION = (Path("/run"), Path("/var/run"))
_NAMES = Path("/run/systemd/resolve")
_RESOLVER = Path("/etc/resolv.conf")
_SYSTEM = frozenset(
    Path(name)
    for name in (
        *("/", "/etc", "/var", "/dev", "/proc", "/sys", "/opt", "/lib", "/lib64"),
        *("/bin", "/sbin", "/usr", "/usr/bin", "/usr/sbin"),
    )
)
"""What accounts without a home of their own have for one: without these no program would start."""
_PROGRAM_FOLDERS = frozenset({"bin", "sbin", "shims"})
_MAX_LINKS = 40
_MAX_NAMES = 1000
_MAX_SHEBANG_BYTES = 256

NAMESPACES = (
    "--die-with-parent",
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    *("--cap-drop", "ALL"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """What is empty behind the walls: resolved folders.  `home` is that of aos, of which least is shown."""

    home: Path
    others: tuple[Path, ...] = ()

    @property
    def all(self) -> tuple[Path, ...]:
        """Each before what lies in it."""
        return tuple(sorted({SCRATCH, self.home, *self.others}, key=lambda path: (len(path.parts), path)))

    def hides(self, path: Path) -> bool:
        return any(path.is_relative_to(mask) for mask in self.all)

    def hides_home(self, path: Path) -> bool:
        return path.is_relative_to(self.home)


def find_masks(home: Path, environ: Mapping[str, str]) -> Masks:
    """The masks of this machine, for the aos home `home`."""
    users = [Path(text) for text in (environ.get("HOME", ""), _account_folder()) if text.startswith("/")]
    found = {path.resolve() for path in (*_SESSION, *users) if path.is_dir()}
    return Masks(home=home.resolve(), others=tuple(sorted(found - _SYSTEM)))


def wall_options(
    masks: Masks, *, shown: tuple[Path, ...], writable: tuple[Path, ...] = ()
) -> tuple[str, ...]:
    """The options of bubblewrap but for the environment: what is `shown` can be read in spite of a mask."""
    return (
        *NAMESPACES,
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *(word for mask in masks.all for word in ("--tmpfs", str(mask))),
        *(word for path in (*_name_files(masks), *shown) for word in ("--ro-bind", str(path), str(path))),
        *(word for path in writable for word in ("--bind", str(path), str(path))),
    )


def closing_options(masks: Masks) -> tuple[str, ...]:
    """What comes last: the masks are written to no more."""
    return tuple(word for mask in masks.all if mask != SCRATCH for word in ("--remount-ro", str(mask)))


class Room(NamedTuple):
    """The options that make room for a file, and those that close it when the file is there."""

    options: tuple[str, ...] = ()
    last_options: tuple[str, ...] = ()


def make_room(masks: Masks, writable: tuple[Path, ...], path: Path) -> Room:
    """How a file can be shown at `path`, where there may be none, and the machine is read-only.

    In a mask it can be made; a file that is there is covered; else the nearest folder above it is put
    together again from what is in it.  InvalidInput `process-file-place` where the program could move it
    away, or that would show what is masked.
    """
    path = path.resolve()
    masked = [mask for mask in masks.all if path.is_relative_to(mask)]
    if masked[-1:] == [SCRATCH] or any(path.is_relative_to(one) for one in writable):
        raise _no_room(path, "the program can write there")
    if masked or path.is_file():
        return Room()
    folder = next(one for one in path.parents if one.exists())
    covers = any(one.is_relative_to(folder) for one in (*masks.all, *writable))
    names = sorted(folder.iterdir()) if folder.is_dir() and not covers else []
    if covers or not folder.is_dir() or len(names) > _MAX_NAMES:
        raise _no_room(path, "its folder cannot be put together again")
    return Room(
        ("--tmpfs", str(folder), *(word for name in names for word in _again(name))),
        ("--remount-ro", str(folder)),
    )


def _again(path: Path) -> tuple[str, ...]:
    """What is there, there once more."""
    if path.is_symlink():
        return ("--symlink", os.fspath(path.readlink()), str(path))
    return ("--ro-bind", str(path), str(path))


def _no_room(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "process-file-place",
        f"a file cannot be shown to a program at {path}: {why}",
        hint="show it somewhere else, or by a variable",
    )


def needed_files(program: Path, masks: Masks, find: Callable[[str], Path | None]) -> tuple[Path, ...]:
    """What must be shown so that `program` starts: where it is installed, if that is masked.

    Each link on the way to it counts, and the interpreter that its first line names; `find` looks on PATH.
    A program in `X/bin` (or `sbin`, `shims`) has X for its installation, unless X is the home itself, its
    `.local`, or holds something masked: then only the file is shown.
    """
    chain = list(_links(program))
    interpreter = _interpreter(chain[-1], find)
    if interpreter is not None:
        chain += _links(interpreter)
    found = dict.fromkeys(_installation(path, masks) for path in chain if masks.hides(path))
    return tuple(path for path in found if not masks.hides_home(path))


def _installation(program: Path, masks: Masks) -> Path:
    prefix = program.parent.parent
    is_too_wide = any(mask.is_relative_to(prefix) or prefix == mask / ".local" for mask in masks.all)
    return program if is_too_wide or program.parent.name not in _PROGRAM_FOLDERS else prefix


def _links(path: Path) -> Iterator[Path]:
    """The path, and what it leads to, step by step; their folders resolved."""
    for _ in range(_MAX_LINKS):
        yield path
        if not path.is_symlink():
            return
        target = path.parent / path.readlink()
        path = target.parent.resolve() / target.name


def _interpreter(program: Path, find: Callable[[str], Path | None]) -> Path | None:
    """What runs a script, by its first line; None where it is none."""
    try:
        with program.open("rb") as file:
            line = file.read(_MAX_SHEBANG_BYTES).split(b"\n", 1)[0]
    except OSError:
        return None
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if words and Path(words[0]).name == "env":
        named = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        return find(named[0]) if named else None
    return Path(words[0]) if words and words[0].startswith("/") else None


def _name_files(masks: Masks) -> tuple[Path, ...]:
    """What resolves names, where it is masked."""
    target = _RESOLVER.resolve()
    files = [_NAMES] if _NAMES.is_dir() else []
    if target.is_file() and masks.hides(target) and not target.is_relative_to(_NAMES):
        files.append(target)
    return tuple(files)


def _account_folder() -> str:
    """The home that the system knows for this user, whatever HOME says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""
