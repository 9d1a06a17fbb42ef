"""The files of a capsule and the archive made of them.

What is packed: the manifest, the component, what the manifest names, `assets/`, `skills/`, `wit/` and the
canonical contracts (build-install.md 2.7, 2.9 to 2.12).  Nothing is packed through a symbolic link, and a
file that the manifest names and that is not there fails the build (cases ARC-11, ARC-14).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from aos_runtime.capsule.paths import path_problem
from aos_runtime.errors import InvalidInput, LimitExceeded, NotFound

if TYPE_CHECKING:
    from aos_runtime.capsule.archive import Member
    from aos_runtime.capsule.provenance import Provenance
    from aos_runtime.names import Digest

Compression = Literal["gzip", "zstd"]
WIT_FOLDER = "wit"
CONTRACTS_PATH = "wit/deps/astrid-contracts/astrid-contracts.wit"
OPAQUE_FOLDERS = ("assets", "skills")
MAX_FILE_BYTES = 512 * 1024 * 1024
LARGE_ARCHIVE_BYTES = 50 * 1024 * 1024
"""Installing refuses a larger one; building warns."""
_STUB_WIT = b"package astrid:capsule-stub@1.0.0;\n\ninterface stub {\n}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extra:
    """A file of the capsule besides manifest and component.  `path` is relative, `/`-separated."""

    path: str
    data: bytes
    executable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Wit:
    """What becomes `wit/` in the archive, with its folders, and what there is to say about it."""

    files: tuple[Extra, ...] = ()
    folders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """An archive in memory, with the digest over its files and its signature, if it has one."""

    data: bytes
    content_digest: Digest
    provenance: Provenance | None
    files: tuple[str, ...]


def collect_named(folder: Path, names: Iterable[str]) -> tuple[Extra, ...]:
    """The files and folders that the manifest names.  NotFound `named-file-missing` lists all that lack."""
    names = tuple(names)
    missing = [name for name in names if not os.path.lexists(folder / name)]
    if missing:
        raise NotFound(
            "named-file-missing",
            f"Capsule.toml names what is not there: {', '.join(missing)}",
            hint="add it to the project, or remove it from the manifest",
            missing=missing,
        )
    found = [extra for name in names for extra in _collect(folder, PurePosixPath(name))]
    return tuple(found)


def collect_opaque(folder: Path) -> tuple[Extra, ...]:
    """The regular files below `assets/` and `skills/`."""
    present = [name for name in OPAQUE_FOLDERS if os.path.lexists(folder / name)]
    for name in present:
        if not (folder / name).is_dir():
            raise _refused(name, "is no folder")
    return tuple(extra for name in present for extra in _collect(folder, PurePosixPath(name)))


def stage_wit(folder: Path, contracts: bytes | None, *, no_contracts: str) -> Wit:
    """The author's `wit/`, else a stub, with the SDK's contracts below `deps`.

    Where there are no contracts, `no_contracts` is the note that says why.
    """
    own = _collect(folder, PurePosixPath(WIT_FOLDER)) if os.path.lexists(folder / WIT_FOLDER) else []
    if any(extra.path == WIT_FOLDER for extra in own):
        raise _refused(WIT_FOLDER, "is no folder")
    if contracts is None:
        return Wit(files=tuple(own), folders=_folders(folder, own), notes=(no_contracts,))
    notes = tuple(
        f"{CONTRACTS_PATH} of the project was replaced by the one of the SDK in the graph"
        for extra in own
        if extra.path == CONTRACTS_PATH and extra.data != contracts
    )
    files = [extra for extra in own if extra.path != CONTRACTS_PATH]
    if not own:
        files = [Extra(path="wit/capsule.wit", data=_STUB_WIT, executable=False)]
    files.append(Extra(path=CONTRACTS_PATH, data=contracts, executable=False))
    return Wit(files=tuple(files), folders=_folders(folder, files), notes=notes)


def pack(
    manifest: bytes,
    component: tuple[str, bytes] | None,
    extras: Sequence[Extra],
    wit: Wit,
    *,
    compression: Compression,
    seed: bytes | None,
) -> Packed:
    """Write the archive; signed with `seed`, unsigned where it is None.  `component` is its path and bytes.

    The same input gives the same bytes, whoever packs it, wherever and whenever.
    """
    from aos_runtime.capsule.archive import Member, entry_of, write_archive
    from aos_runtime.capsule.manifest import MANIFEST_FILE
    from aos_runtime.capsule.provenance import (
        PROVENANCE_FILE,
        content_digest,
        render_provenance,
        sign_content,
    )

    binaries = [Member(path=component[0], data=component[1])] if component else []
    members = [
        Member(path=MANIFEST_FILE, data=manifest),
        *binaries,
        *(_member(extra) for extra in (*extras, *wit.files)),
    ]
    digest = content_digest(entry_of(member) for member in members)
    provenance = sign_content(digest, seed) if seed is not None else None
    if provenance is not None:
        members.append(Member(path=PROVENANCE_FILE, data=render_provenance(provenance)))
    archive = write_archive(members, compression=compression, directories=wit.folders)
    files = tuple(member.path for member in members)
    return Packed(data=archive, content_digest=digest, provenance=provenance, files=files)


def _member(extra: Extra) -> Member:
    from aos_runtime.capsule.archive import Member

    return Member(path=extra.path, data=extra.data, executable=extra.executable)


def _collect(root: Path, relative: PurePosixPath) -> list[Extra]:
    """One file, or every file below one folder, in order of name; the way there holds no link either."""
    for parent in (*reversed(relative.parents), relative):
        if parent.parts and (root / parent).is_symlink():
            raise _refused(str(parent), "is a symbolic link")
    problem = path_problem(str(relative))
    if problem is not None:
        raise _refused(str(relative), problem)
    facts = (root / relative).lstat()
    if stat.S_ISDIR(facts.st_mode):
        names = sorted(path.name for path in (root / relative).iterdir())
        return [extra for name in names for extra in _collect(root, relative / name)]
    if not stat.S_ISREG(facts.st_mode):
        raise _refused(str(relative), "is neither a file nor a folder")
    return [_read(root / relative, str(relative), facts)]


def _read(path: Path, relative: str, facts: os.stat_result) -> Extra:
    if facts.st_size > MAX_FILE_BYTES:
        raise LimitExceeded(
            "packed-file-size",
            f"{relative} has {facts.st_size} bytes, and an archive holds at most {MAX_FILE_BYTES}",
            hint="keep large files out of the capsule",
            path=relative,
        )
    return Extra(path=relative, data=path.read_bytes(), executable=bool(facts.st_mode & 0o111))


def _folders(root: Path, files: Sequence[Extra]) -> tuple[str, ...]:
    """Every folder of `wit/`: those of the files, and empty ones of the project."""
    folders = {str(parent) for extra in files for parent in PurePosixPath(extra.path).parents if parent.parts}
    for path, _, _ in os.walk(root / WIT_FOLDER):
        folders.add(Path(path).relative_to(root).as_posix())
    return tuple(sorted(folders, key=lambda folder: folder.split("/"))) if files else ()


def _refused(path: str, why: str) -> InvalidInput:
    if why == "is a symbolic link":
        return InvalidInput(
            "symlink-refused",
            f"{path} is a symbolic link",
            hint="put the file itself there; nothing is packed through a link",
            path=path,
        )
    return InvalidInput("packed-path", f"{path} {why}", hint="rename or remove it", path=path)
