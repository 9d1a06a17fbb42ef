"""Whether cargo's artifact was made from the sources that are here now.

Cargo decides by modification time, so a file put back with an older time, or two projects of one name that
share a target folder, leave it believing that an old artifact is fresh (case BLD-22).  Beside cargo's files
lies a record of the sources' digests; where cargo says fresh and the record disagrees, the package is built
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from blake3 import blake3

from aos_cli.build.cargo import Artifact, Project

SCHEMA = 1
_MAX_RECORD_BYTES = 4 * 1024 * 1024
_ESCAPED_SPACE = re.compile(r"(?<!\\) ")


def record_folder(project: Project) -> Path:
    """Where a build keeps its own files: a folder beside cargo's, in the same target folder."""
    return project.target_folder / "aos"


def record_file(project: Project, *, debug: bool) -> Path:
    """The record of one package and profile."""
    profile = "debug" if debug else "release"
    return record_folder(project) / f"{project.package.name}-{profile}.json"


def read_sources(artifact: Artifact) -> dict[str, str]:
    """The digest of each source in cargo's dependency file (a file that is gone has an empty one)."""
    try:
        text = artifact.dependency_file.read_text("utf-8", "surrogateescape")
    except OSError:
        return {}
    return {str(path): _digest(path) for path in parse_dependencies(text)}


def parse_dependencies(text: str) -> tuple[Path, ...]:
    """The prerequisites of a make-style file: `target: source source`, blanks within a name escaped."""
    paths: dict[Path, None] = {}
    for line in text.splitlines():
        _, colon, sources = line.partition(": ")
        for word in _ESCAPED_SPACE.split(sources) if colon else ():
            if word:
                paths[Path(word.replace("\\ ", " "))] = None
    return tuple(paths)


def stale_sources(record: Path, project: Project, sources: Mapping[str, str]) -> tuple[str, ...] | None:
    """What changed since the artifact was made: paths, or None where nothing tells what it was made from."""
    try:
        with record.open("rb") as file:
            known = json.loads(file.read(_MAX_RECORD_BYTES))
        before = dict(known["sources"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if known.get("schema") != SCHEMA or known.get("project") != str(project.package.folder):
        return None
    return tuple(sorted(path for path, digest in sources.items() if before.get(path) != digest))


def render_record(project: Project, sources: Mapping[str, str]) -> bytes:
    """The record's bytes."""
    value = {"schema": SCHEMA, "project": str(project.package.folder), "sources": dict(sources)}
    return json.dumps(value, indent=1).encode("utf-8", "surrogateescape")


def owners(project: Project, paths: Iterable[str]) -> tuple[str, ...]:
    """The author's own packages that these files belong to, the capsule's always among them."""
    near = [crate for crate in project.crates if crate.source is None]
    names = {project.package.name}
    for path in paths:
        holders = [crate for crate in near if Path(path).is_relative_to(crate.folder)]
        if holders:
            names.add(max(holders, key=lambda crate: len(crate.folder.parts)).name)
    return tuple(sorted(names))


def _digest(path: Path) -> str:
    try:
        return blake3(path.read_bytes()).hexdigest()
    except OSError:
        return ""
