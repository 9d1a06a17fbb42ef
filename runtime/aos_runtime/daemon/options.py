"""How a daemon was asked to run, and how it can fail to end: what `process` and `runtime` both speak of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aos_runtime.store.file_tree import PRIVATE_UMASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a daemon was asked to run.  `workspace` is canonical; `user_home` is never a workspace."""

    ephemeral: bool = False
    foreground: bool = False
    workspace: Path | None = None
    user_home: Path | None = None
    umask: int = PRIVATE_UMASK
    """What the caller's files may be read by: the workspace is his, and what is made there."""


class StuckThreads(RuntimeError):
    """A thread would not end: nothing can be freed under it, the process must go."""
