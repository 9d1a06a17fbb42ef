"""Which folder `cwd://` means for this caller.

The nearest folder upward that holds `.aos` or `.git`, else none (architecture, "What a guest can
reach").  A folder that the daemon would refuse is no workspace: `/`, the user's home folder, anything
around or inside AOS_HOME.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aos_runtime.errors import InvalidInput
from aos_runtime.home import WORKSPACE_STATE_DIR, Home

_MARKS = (WORKSPACE_STATE_DIR, ".git")


def is_refused(folder: Path, home: Home, user_home: Path | None) -> bool:
    """Whether no capsule may have `folder` (canonical) as its workspace."""
    root = home.root.resolve()
    return (
        folder == Path(folder.anchor)
        or folder in (user_home, root)
        or root in folder.parents
        or folder in root.parents
    )


def _user_home(environ: Mapping[str, str]) -> Path | None:
    text = environ.get("HOME", "")
    return Path(text).resolve() if text else None


def find_workspace(start: Path, home: Home, environ: Mapping[str, str]) -> Path | None:
    """The workspace of a caller that stands in `start`, or None."""
    folder = start.resolve()
    user_home = _user_home(environ)
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in _MARKS) and not is_refused(candidate, home, user_home):
            return candidate
    return None


def parse_workspace(text: str, start: Path, home: Home, environ: Mapping[str, str]) -> Path:
    """The folder that `--workspace` names, resolved from `start`.  InvalidInput `workspace-refused` else."""
    folder = (start / Path(text).expanduser()).resolve()
    if not folder.is_dir():
        raise InvalidInput(
            "workspace-refused",
            f"the workspace is not a folder: {folder}",
            hint="name an existing project folder",
        )
    if is_refused(folder, home, _user_home(environ)):
        raise InvalidInput(
            "workspace-refused",
            f"capsules may not have {folder} as their workspace",
            hint="name a project folder: not `/`, your home folder, or a folder around or inside AOS_HOME",
        )
    return folder
