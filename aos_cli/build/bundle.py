"""Builds the first-party capsules into the folder that an installation reads them from.

`build_bundle` is the one way to them: for a wheel (the build hook) and for a checkout (`scripts/toolchain`).
The archives carry no signature: what a user's key signs differs from user to user, and the authority of a
bundled capsule is its line in `bundled.json` (name, version, file, content digest, what it asks for).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from aos_cli.build.pipeline import Request, build_project
from aos_cli.build.record import BuildRecord
from aos_cli.console import Console
from aos_runtime.capsule.capability import held_names
from aos_runtime.errors import AosError, NotFound

CATALOGUE_FILE = "bundled.json"


def build_bundle(
    checkout: Path, destination: Path, *, environ: Mapping[str, str] | None = None
) -> tuple[BuildRecord, ...]:
    """Build every capsule of `checkout/capsules` into `destination`, the catalogue last.

    Works again at any time, quickly where nothing changed; archives of capsules that are gone are removed.
    """
    environ = os.environ if environ is None else environ
    console = Console(environ=environ)
    folders = sorted(path.parent for path in (checkout / "capsules").glob("*/Capsule.toml"))
    if not folders:
        raise NotFound(
            "capsules-missing",
            f"there are no capsules in {checkout / 'capsules'}",
            hint="run it from a whole checkout of aos",
        )
    records = []
    for folder in folders:
        console.note(f"building the first-party capsule {folder.name}")
        request = Request(folder=folder, output=destination, locked=True, any_toolchain=True)
        records.append(build_project(request, environ=environ, console=console))
    _write_catalogue(destination, records)
    return tuple(records)


def _write_catalogue(destination: Path, records: list[BuildRecord]) -> None:
    from aos_runtime.store.files import write_atomic

    rows = [
        {
            "name": record.manifest.name,
            "version": record.manifest.version,
            "file": record.path.name,
            "content_digest": record.packed.content_digest,
            "asks": list(held_names(record.manifest.capabilities)),
        }
        for record in sorted(records, key=lambda record: record.manifest.name)
    ]
    text = json.dumps(rows, indent=2) + "\n"
    write_atomic(destination / CATALOGUE_FILE, text.encode(), mode=0o644, sync=False)
    kept = {record.path.name for record in records}
    for path in destination.glob("*.capsule"):
        if path.name not in kept:
            path.unlink()


def main(arguments: list[str]) -> int:
    """`python -m aos_cli.build.bundle CHECKOUT DESTINATION`, for `scripts/toolchain`."""
    console = Console(environ=os.environ)
    checkout, destination = (Path(argument).resolve() for argument in arguments)
    try:
        for record in build_bundle(checkout, destination):
            size = f"{len(record.packed.data)} bytes"
            console.note(f"{record.path.name}: {record.manifest.name} {record.manifest.version}, {size}")
    except AosError as error:
        console.error(error.message)
        console.hint(error.hint)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
