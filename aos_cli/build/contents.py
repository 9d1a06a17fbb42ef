"""What is packed beside manifest and component, read from the project, and where the archive goes."""

from __future__ import annotations

import tempfile
from pathlib import Path

from aos_cli.build.component import check_wit_folder
from aos_cli.build.package import (
    LARGE_ARCHIVE_BYTES,
    WIT_FOLDER,
    Extra,
    Packed,
    Wit,
    collect_named,
    collect_opaque,
    stage_wit,
)
from aos_cli.build.request import Request, Talk
from aos_runtime.errors import Issue
from aos_runtime.store.files import write_atomic


def collect_extras(folder: Path, named: tuple[str, ...]) -> tuple[Extra, ...]:
    """What goes in besides manifest, component and `wit/`, each path once."""
    found = (*collect_named(folder, named), *collect_opaque(folder))
    return tuple({extra.path: extra for extra in found if not extra.path.startswith("wit/")}.values())


def stage_interfaces(folder: Path, contracts: bytes | None, talk: Talk, *, no_contracts: str) -> Wit:
    """The `wit/` of the archive, looked at: what others could not read there is a doubt."""
    wit = stage_wit(folder, contracts, no_contracts=no_contracts)
    for note in wit.notes:
        talk.note(f"note: {note}")
    if (folder / WIT_FOLDER).is_dir():
        problem = _wit_problem(wit)
        if problem:
            message = f"wit/ does not resolve as one package: {problem}"
            talk.doubt(
                Issue(message=message, file="wit", hint="correct it: others read your interfaces there")
            )
    return wit


def _wit_problem(wit: Wit) -> str | None:
    with tempfile.TemporaryDirectory(prefix="aos-wit-") as name:
        for extra in wit.files:
            path = Path(name) / extra.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(extra.data)
        return check_wit_folder(Path(name) / "wit")


def write_package(request: Request, name: str, packed: Packed, talk: Talk) -> Path:
    """Write `<name>.capsule` into the output folder, in one step, over the one before."""
    if len(packed.data) > LARGE_ARCHIVE_BYTES:
        size = len(packed.data)
        message = f"the archive has {size} bytes, and installing refuses more than {LARGE_ARCHIVE_BYTES}"
        talk.doubt(Issue(message=message, hint="keep large files out of assets/ and skills/"))
    request.output.mkdir(parents=True, exist_ok=True)
    path = request.output / f"{name}.capsule"
    write_atomic(path, packed.data, mode=0o644, sync=False)
    return path
