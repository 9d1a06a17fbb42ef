"""Capsule projects that the journeys build with real cargo, each once per machine, in one shared target
folder.

Workers of a parallel run take turns under a file lock; a project whose sources have not changed since is
a no-op build.  The folder is the checkout's ignored work folder, so a second run is fast.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.installation import ROOT, Aos

WORK = ROOT / ".work" / "journeys"
SOURCES = ROOT / "tests" / "journeys" / "projects"


def build_project(name: str) -> Path:
    """The `.capsule` of a project: `aos capsule new NAME`, files of `projects/NAME` laid over it, then
    built."""
    with _turn():
        builder = Aos(root=WORK / "builder", extra={"CARGO_TARGET_DIR": str(shared_target())})
        project = WORK / "projects" / name
        if not (project / "Capsule.toml").exists():
            shutil.rmtree(project, ignore_errors=True)
            builder.run("capsule", "new", name, "--path", str(project.parent))
        _lay_over(SOURCES / name, project)
        builder.run("capsule", "build", folder=project)
        return project / "dist" / f"{name}.capsule"


def shared_target() -> Path:
    """The one cargo target folder of a test run."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "capsules" / "target"))


def _lay_over(source: Path, project: Path) -> None:
    if not source.is_dir():
        return
    for path in sorted(source.rglob("*")):
        target = project / path.relative_to(source)
        if path.is_file() and (not target.exists() or target.read_bytes() != path.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())


@contextmanager
def _turn() -> Iterator[None]:
    WORK.mkdir(parents=True, exist_ok=True)
    with (WORK / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
