"""How a program that a capsule brings or names is started: its environment, its command line, its walls.

With bubblewrap it sees the machine read-only, an empty /tmp of its own, its own processes only, and nothing
of the home but its capsule's files.  Without, it is refused, unless the operator said otherwise.  This
starts nothing but a look whether bubblewrap works.

Source: architecture.md 2 ("What a guest can reach"), build-install.md 4.9, case MAN-11.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aos_runtime.errors import NotFound, Unavailable

WALL = "bwrap"
_KEPT = ("PATH", "LANG", "TZ")
_KEPT_PREFIX = "LC_"
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_PROBE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start."""

    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """The walls of one daemon.  `wall` is the path of bubblewrap, None where it is not used."""

    home: Path
    wall: str | None

    def program(
        self, command: str, args: tuple[str, ...], folder: Path, values: Mapping[str, str]
    ) -> Program:
        """The program `command` of the capsule whose files are in `folder`, with its `[env]` values.

        NotFound `process-program-missing` where there is none of that name.
        """
        environ = clear_environ(os.environ) | dict(values)
        words = (_find_program(command, folder, environ["PATH"]), *args)
        if self.wall is not None:
            words = (self.wall, *wall_arguments(self.home, folder), "--", *words)
        return Program(arguments=words, environ=environ, folder=folder)


def open_sandbox(home: Path, *, allow_unsandboxed: bool, environ: Mapping[str, str] | None = None) -> Sandbox:
    """The walls that this machine can put up.

    Unavailable `process-sandbox-missing` where it can put up none and the operator did not do without.
    """
    path = (os.environ if environ is None else environ).get("PATH", _DEFAULT_PATH)
    wall = shutil.which(WALL, path=path)
    if wall is not None and _works(wall):
        return Sandbox(home=home, wall=wall)
    if allow_unsandboxed:
        return Sandbox(home=home, wall=None)
    reason = "is not installed" if wall is None else "cannot run here"
    raise Unavailable(
        "process-sandbox-missing",
        f"it starts a program, and bubblewrap ({WALL}), which would confine it, {reason}",
        hint="install bubblewrap, or set `unsandboxed = true` under [process] in the home's etc/config.toml",
    )


def clear_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What a program inherits: where programs are, language, time zone; nothing else of the daemon's."""
    kept = {key: value for key, value in environ.items() if key in _KEPT or key.startswith(_KEPT_PREFIX)}
    return {"PATH": _DEFAULT_PATH, **kept}


def wall_arguments(home: Path, folder: Path) -> tuple[str, ...]:
    """The options of bubblewrap for a program of the capsule in `folder`; all else of `home` is masked."""
    return (
        "--die-with-parent",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *("--tmpfs", "/tmp"),
        *("--tmpfs", str(home)),
        *("--ro-bind", str(folder), str(folder)),
        *("--remount-ro", str(home)),
        *("--chdir", str(folder)),
    )


def _works(wall: str) -> bool:
    """Whether bubblewrap may make namespaces here: many containers forbid it."""
    words = [wall, "--ro-bind", "/", "/", "--unshare-pid", "--proc", "/proc", "--", "/bin/true"]
    try:
        run = subprocess.run(words, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return run.returncode == 0


def _find_program(command: str, folder: Path, path: str) -> str:
    """The program's path: in the capsule, for this machine where a folder holds several, else on PATH."""
    own = folder / command
    if own.is_dir() and own != folder:
        own = own / f"{platform.machine()}-unknown-linux-gnu"
    found = str(own) if own.is_file() else shutil.which(command, path=path)
    if found is None:
        raise NotFound(
            "process-program-missing",
            f"there is no program `{command}`, neither in the capsule nor on PATH",
            hint="install it, and start the daemon again if that changed its PATH",
            command=command,
        )
    return found
