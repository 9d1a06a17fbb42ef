"""How a program that a capsule brings or names is started: its environment, its command line, its walls.

With bubblewrap it sees of the machine what `walls` shows.  Without, it is refused, unless the operator said
otherwise.  What the capsule sets in the environment never reaches bubblewrap itself, which runs outside, nor
any command line.  This starts nothing but a look whether bubblewrap works.

Who starts a Program: bubblewrap ends with the *thread* that started it, so that must be one that lives as
long as the daemon (`mcp.McpLoop` has one), and `store.children` must know of it.

Source: architecture.md 2 ("What a guest can reach"), build-install.md 4.9, case MAN-11, ADR 0012.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from aos_runtime.errors import InvalidInput, NotFound, Unavailable
from aos_runtime.programs.walls import (
    NAMESPACES,
    Masks,
    closing_options,
    find_masks,
    make_room,
    needed_files,
    wall_options,
)
from aos_runtime.store.children import CHILD_VARIABLE

WALL = "bwrap"
INSIDE_HOME = "/tmp"
_KEPT = ("LANG", "TZ")
_KEPT_PREFIX = "LC_"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PROBE_TIMEOUT_S = 10.0
_LOADER_PREFIXES = ("LD_", "DYLD_", "LDR_", "_RLD")
_LOADER_NAMES = frozenset({"BASH_ENV", "ENV", "GCONV_PATH", "GLIBC_TUNABLES"})


class Opened(NamedTuple):
    """A command line, and the descriptors that go with it; whoever starts it closes them then."""

    arguments: tuple[str, ...]
    descriptors: tuple[int, ...]


class Shown(NamedTuple):
    """Bytes that a program finds as a file, which it can read and nobody can change."""

    path: Path
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start.  `options` are bubblewrap's, each ended by NUL; empty without walls.  `files` come
    after them, and after these `last_options`, which close what is open for writing until then.
    """

    words: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path
    wall: str | None = None
    options: bytes = b""
    files: tuple[Shown, ...] = ()
    last_options: bytes = b""
    warnings: tuple[str, ...] = ()

    @property
    def is_walled(self) -> bool:
        return self.wall is not None

    def open(self) -> Opened:
        """The command line to start now.  The options are in a file that has no name: secrets are there."""
        if self.wall is None:
            return Opened(self.words, ())
        descriptors = [_nameless("aos-file", one.content) for one in self.files]
        placed = (
            word
            for descriptor, one in zip(descriptors, self.files, strict=True)
            for word in ("--ro-bind-data", str(descriptor), str(one.path))
        )
        options = _nameless("aos-options", self.options + _encoded(*placed) + self.last_options)
        words = (self.wall, "--args", str(options), "--", *self.words)
        return Opened(words, (options, *descriptors))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The walls of one daemon.  `wall` is the path of bubblewrap, None where it is not used; `mark` the one
    of `store.children`.
    """

    masks: Masks
    wall: str | None
    mark: str

    def program(
        self,
        command: str,
        args: tuple[str, ...],
        folder: Path,
        values: Mapping[str, str],
    ) -> Program:
        """The program `command` of the capsule whose files are in `folder`, with its `[env]` values.

        NotFound `process-program-missing` where there is none of that name; InvalidInput
        `process-environment-value` for a value that no environment can hold.
        """
        folder = folder.resolve()
        own = clear_environ(os.environ)
        found = find_program(command, folder, own["PATH"])
        if found is None or (self.masks.hides_home(found) and not found.is_relative_to(folder)):
            raise _missing(command)
        return self._program(found, args, values, start=folder, shown=(folder,))

    def machine_program(
        self,
        command: str,
        args: tuple[str, ...],
        values: Mapping[str, str],
        *,
        start: Path,
        writable: tuple[Path, ...],
        files: tuple[Shown, ...] = (),
    ) -> Program:
        """A program of the machine, which starts in `start`, can write below `writable` and finds `files`.

        It is looked for on the daemon's PATH, never where it could have been written (ABI-25).  Errors as
        `program`; InvalidInput `process-file-place` for a file that cannot be shown there.
        """
        own = clear_environ(os.environ)
        found = find_on_machine(command, own["PATH"], (*writable, self.masks.home))
        if found is None:
            raise _missing(command)
        return self._program(found, args, values, start=start, writable=writable, files=files)

    def _program(
        self,
        found: Path,
        args: tuple[str, ...],
        values: Mapping[str, str],
        *,
        start: Path,
        shown: tuple[Path, ...] = (),
        writable: tuple[Path, ...] = (),
        files: tuple[Shown, ...] = (),
    ) -> Program:
        _check_values(values)
        own = clear_environ(os.environ)
        words = (str(found), *args)
        outer = own | {CHILD_VARIABLE: self.mark}
        if self.wall is None:
            kept = {key: value for key, value in values.items() if not controls_loader(key)}
            return Program(
                words=words,
                environ=own | kept | {CHILD_VARIABLE: self.mark},
                folder=start,
                warnings=tuple(_dropped(key) for key in values if key not in kept),
            )
        needed = needed_files(found, self.masks, lambda name: find_on_path(name, own["PATH"]))
        rooms = [make_room(self.masks, writable, one.path) for one in files]
        options = (
            *wall_options(self.masks, shown=(*needed, *shown), writable=writable),
            *(word for room in dict.fromkeys(rooms) for word in room.options),
        )
        last_options = (
            *(word for room in dict.fromkeys(rooms) for word in room.last_options),
            *closing_options(self.masks),
            *("--chdir", str(start)),
            *environ_options(own | {"HOME": INSIDE_HOME} | dict(values)),
        )
        return Program(
            words=words,
            environ=outer,
            folder=start,
            wall=self.wall,
            options=_encoded(*options),
            files=files,
            last_options=_encoded(*last_options),
        )


def open_sandbox(
    home: Path, *, allow_unsandboxed: bool, mark: str, environ: Mapping[str, str] | None = None
) -> Sandbox:
    """The walls that this machine can put up.

    Unavailable `process-sandbox-missing` where it can put up none and the operator did not do without.
    """
    environ = os.environ if environ is None else environ
    masks = find_masks(home, environ)
    wall = find_on_path(WALL, clear_environ(environ)["PATH"])
    if wall is not None and _works(wall):
        return Sandbox(masks=masks, wall=str(wall), mark=mark)
    if allow_unsandboxed:
        return Sandbox(masks=masks, wall=None, mark=mark)
    reason = "is not installed" if wall is None else "cannot run here"
    raise Unavailable(
        "process-sandbox-missing",
        f"it starts a program, and bubblewrap ({WALL}), which would confine it, {reason}",
        hint="install bubblewrap, or set `unsandboxed = true` under [process] in the home's etc/config.toml",
    )


def clear_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What a program inherits: where programs are, language, time zone; nothing else of the daemon's.

    Of PATH only what is absolute: the rest would be looked for in the folder that a process happens to be in.
    """
    kept = {key: value for key, value in environ.items() if key in _KEPT or key.startswith(_KEPT_PREFIX)}
    path = ":".join(part for part in environ.get("PATH", "").split(":") if part.startswith("/"))
    return {"PATH": path or _DEFAULT_PATH, **kept}


def environ_options(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The options of bubblewrap for exactly this environment."""
    return ("--clearenv", *(word for key, value in environ.items() for word in ("--setenv", key, value)))


def controls_loader(key: str) -> bool:
    """Whether a variable makes the loader or a shell run other code than the program's."""
    return key in _LOADER_NAMES or key.startswith(_LOADER_PREFIXES)


def find_on_path(name: str, path: str) -> Path | None:
    """The program `name` in the folders of `path`; its folder resolved, its own name kept."""
    found = None if "/" in name else shutil.which(name, path=path)
    return None if found is None else _placed(Path(found))


def find_program(command: str, folder: Path, path: str) -> Path | None:
    """The program's path: in the capsule, for this machine where a folder holds several, else on `path`.

    A word with `/` in it is absolute, or a file of the capsule; never looked for anywhere else.
    """
    if command.startswith("/"):
        return _placed(Path(command)) if os.access(command, os.X_OK) and Path(command).is_file() else None
    own = (folder / command).resolve()
    if not own.is_relative_to(folder):
        return None
    if own.is_dir() and own != folder:
        own = own / f"{platform.machine()}-unknown-linux-gnu"
    return own if own.is_file() else find_on_path(command, path)


def find_on_machine(command: str, path: str, never: tuple[Path, ...]) -> Path | None:
    """The program `command`, a word or an absolute path, whose way leads through none of `never`."""
    if command.startswith("/"):
        found = _placed(Path(command)) if os.access(command, os.X_OK) and Path(command).is_file() else None
    else:
        good = (part for part in path.split(":") if not _is_below(Path(part).resolve(), never))
        found = find_on_path(command, ":".join(good))
    if found is None or _is_below(found, never) or _is_below(found.resolve(), never):
        return None
    return found


def _is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _placed(path: Path) -> Path:
    """Its folder resolved; the last name may be a link that says where a program belongs, as in a venv."""
    return path.parent.resolve() / path.name


def _encoded(*options: str) -> bytes:
    return b"".join(os.fsencode(option) + b"\0" for option in options)


def _nameless(name: str, content: bytes) -> int:
    """A descriptor of a file that is nowhere, at its beginning."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _works(wall: Path) -> bool:
    """Whether bubblewrap may do here what it will be asked for: many containers forbid it."""
    words = (*NAMESPACES, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *environ_options({}))
    program = Program(
        words=("/bin/true",),
        environ={},
        folder=Path("/"),
        wall=str(wall),
        options=_encoded(*words),
    )
    arguments, descriptors = program.open()
    try:
        run = subprocess.run(
            arguments,
            capture_output=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
            env={},
            pass_fds=descriptors,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return run.returncode == 0


def _check_values(values: Mapping[str, str]) -> None:
    """A NUL would end one option of bubblewrap and begin another."""
    for key, value in values.items():
        try:
            is_good = b"\0" not in os.fsencode(value)
        except UnicodeEncodeError:
            is_good = False
        if not is_good:
            raise InvalidInput(
                "process-environment-value",
                f"the value of `{key}` holds a character that no environment can hold",
                hint="set another: aos capsule config",
                key=key,
            )


def _dropped(key: str) -> str:
    return f"`{key}` is not passed on without bubblewrap: it makes a program run other code"


def _missing(command: str) -> NotFound:
    return NotFound(
        "process-program-missing",
        f"there is no program `{command}`, neither in the capsule nor on PATH",
        hint="install it, and start the daemon again if that changed its PATH",
        command=command,
    )
