"""Whether a folder may be the workspace of a connection: what `cwd://` will mean for its calls.

Refused are `/`, the user's own home folder, any ancestor or descendant of the aos home, and folders of other
users (architecture section 2).  `wire.handshake` has checked the text; this looks at the disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from aos_runtime.home import WORKSPACE_STATE_DIR, Home

MARKERS = (WORKSPACE_STATE_DIR, ".git")


def workspace_refusal(folder: Path, home: Home, user_home: Path | None) -> str | None:
    """Why `folder` (absolute) cannot be a workspace; None where it can."""
    if not folder.is_dir():
        return "workspace is not a folder"
    real = folder.resolve()
    if real != folder:
        return "workspace must be a canonical path, without symbolic links"
    if real == Path("/"):
        return "workspace must not be the root folder"
    if user_home is not None and real == user_home.resolve():
        return "workspace must not be the home folder of the user"
    root = home.root.resolve()
    if root == real or root.is_relative_to(real) or real.is_relative_to(root):
        return "workspace must not hold the aos home nor lie in it"
    if real.stat().st_uid != os.getuid():
        return "workspace belongs to another user"
    return None


def find_workspace(start: Path, home: Home, user_home: Path | None) -> Path | None:
    """The nearest folder upward from `start` with `.aos` or `.git` that can be a workspace;

    None where none is.
    """
    real = start.resolve()
    for folder in (real, *real.parents):
        if any((folder / marker).exists() for marker in MARKERS):
            return None if workspace_refusal(folder, home, user_home) else folder
    return None
