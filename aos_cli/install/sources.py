"""What `aos capsule install SOURCE` names: archives, a folder of them, or a project to build.

Paths are resolved here, against the caller's folder, before anything else sees them (case INS-24).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from aos_cli.build.kinds import find_kind
from aos_runtime.errors import InvalidInput, NotFound

_SUFFIX = ".capsule"
_REMOTE = ("@", "http://", "https://", "github.com/", "gh:", "oci://")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One thing to install.  `path` is absolute; `is_project` is built first."""

    path: Path
    is_project: bool


def expand_source(text: str, start: Path) -> tuple[Source, ...]:
    """The archives or the project that one SOURCE word names, sorted by name.

    NotFound `source-missing`; InvalidInput `source-remote` or `source-kind` where it cannot be installed
    from.
    """
    if text.startswith(_REMOTE) and not (start / text).exists():
        raise InvalidInput(
            "source-remote",
            f"cannot install from the network yet: {text}",
            hint="download the .capsule file and name it here",
        )
    path = start / text
    if not path.exists() and text.startswith("~"):
        path = Path(text).expanduser()
    try:
        path = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            "source-missing",
            f"no such file or folder: {path}",
            hint="name a .capsule file, a folder of them, or a capsule project",
            path=str(path),
        ) from None
    return _expand_folder(path) if path.is_dir() else (_archive(path),)


def _archive(path: Path) -> Source:
    if path.suffix != _SUFFIX or not path.is_file():
        raise InvalidInput(
            "source-kind",
            f"not a .capsule file: {path}",
            hint="build one with `aos capsule build`, or name a project folder",
        )
    return Source(path=path, is_project=False)


def _expand_folder(folder: Path) -> tuple[Source, ...]:
    if find_kind(folder) is not None:
        return (Source(path=folder, is_project=True),)
    archives = sorted(path for path in folder.iterdir() if path.suffix == _SUFFIX and path.is_file())
    if archives:
        return tuple(Source(path=path, is_project=False) for path in archives)
    raise InvalidInput(
        "source-kind",
        f"nothing to install in {folder}: no .capsule file, Cargo.toml, Capsule.toml or mcp.json",
        hint="start a project with `aos capsule new NAME`, or name a folder that holds .capsule files",
    )
