"""The capsules that come with the wheel: their catalogue is their authority.

`bundled.json` lists name, version, file, content digest and the capabilities of each.  One that the operator
removed stays removed (`home.bundled_file`); one that the operator replaced by an own build is left alone; a
newer one replaces an older bundled one.  This module reads archives of the wheel and installs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import aos_runtime
from aos_runtime.capsule.version import Version
from aos_runtime.errors import AosError, Corrupt
from aos_runtime.home import Home
from aos_runtime.names import CapsuleName, Digest, PrincipalName, parse_capsule_name, parse_digest
from aos_runtime.store.files import make_private_folder, read_optional, write_atomic
from aos_runtime.store.installed import Broken, Installed, check_installed, list_installed

BUNDLED_FOLDER = Path(aos_runtime.__file__).parent / "_bundled"
CATALOGUE_FILE = "bundled.json"
MAX_CATALOGUE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledCapsule:
    """One row of the catalogue."""

    name: CapsuleName
    version: str
    path: Path
    content_digest: Digest
    asks: tuple[str, ...] = ()
    """The names of the capabilities that it asks for.  One that asks for any waits for a person's yes."""


def read_catalogue(folder: Path = BUNDLED_FOLDER) -> tuple[BundledCapsule, ...]:
    """The bundled capsules by name; none where the folder has no catalogue.  Corrupt `catalogue-damaged`."""
    data = read_optional(folder / CATALOGUE_FILE, MAX_CATALOGUE_BYTES)
    if data is None:
        return ()
    try:
        rows = [_row(folder, row) for row in json.loads(data)]
    except (ValueError, KeyError, TypeError, AosError) as error:
        raise Corrupt(
            "catalogue-damaged",
            f"{folder / CATALOGUE_FILE} is damaged: {error}",
            hint="reinstall aos",
        ) from error
    return tuple(sorted(rows, key=lambda row: row.name))


def due_bundled(
    home: Home, principal: PrincipalName, catalogue: Iterable[BundledCapsule]
) -> tuple[BundledCapsule, ...]:
    """The bundled capsules that are to be installed now: absent ones, and newer than what is there."""
    present = {entry.name: entry for entry in list_installed(home, principal)}
    removed = read_removed(home, principal)
    due: list[BundledCapsule] = []
    for row in catalogue:
        entry = present.get(row.name)
        if entry is None:
            if row.name not in removed:
                due.append(row)
        elif not isinstance(entry, Broken) and entry.bundled and _is_newer(row, entry.version):
            due.append(row)
    return tuple(due)


def damaged_bundled(
    home: Home, principal: PrincipalName, catalogue: Iterable[BundledCapsule]
) -> tuple[BundledCapsule, ...]:
    """The bundled capsules whose files are not what was installed.  Nobody puts them right unasked: who
    changed them is the operator's to find out.
    """
    present = {entry.name: entry for entry in list_installed(home, principal)}
    return tuple(row for row in catalogue if row.name in present and _is_damaged(home, present[row.name]))


def _is_damaged(home: Home, entry: Installed | Broken) -> bool:
    if isinstance(entry, Broken):
        return True
    try:
        check_installed(home, entry)
    except Corrupt:
        return entry.bundled
    return False


def read_removed(home: Home, principal: PrincipalName) -> frozenset[CapsuleName]:
    """The bundled capsules that were removed for `principal` and stay so."""
    return frozenset(CapsuleName(name) for name in _read_record(home).get(principal, ()))


def record_removed(home: Home, principal: PrincipalName, name: CapsuleName, *, removed: bool) -> None:
    """Remember that a bundled capsule was removed, or that it was installed again."""
    record = _read_record(home)
    names = set(record.get(principal, ()))
    if (name in names) == removed:
        return
    names.symmetric_difference_update({name})
    record[principal] = sorted(names)
    make_private_folder(home.bundled_file.parent)
    text = json.dumps({"schema_version": 1, "removed": record}, indent=2, sort_keys=True)
    write_atomic(home.bundled_file, f"{text}\n".encode())


def _is_newer(row: BundledCapsule, installed: str) -> bool:
    return Version.parse(row.version) > Version.parse(installed)


def _read_record(home: Home) -> dict[str, list[str]]:
    data = read_optional(home.bundled_file, MAX_CATALOGUE_BYTES)
    if data is None:
        return {}
    try:
        removed = json.loads(data)["removed"]
        return {str(principal): [str(name) for name in names] for principal, names in removed.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            "bundled-record-damaged",
            f"{home.bundled_file} is damaged: {error}",
            hint="remove the file; bundled capsules that you removed will then be installed again",
        ) from error


def _row(folder: Path, row: object) -> BundledCapsule:
    if not isinstance(row, dict):
        raise TypeError("a row is not an object")
    file = str(row["file"])
    if Path(file).name != file:
        raise ValueError(f"{file!r} is not the name of a file in the folder")
    return BundledCapsule(
        name=parse_capsule_name(str(row["name"])),
        version=str(Version.parse(str(row["version"]))),
        path=folder / file,
        content_digest=parse_digest(str(row["content_digest"])),
        asks=tuple(str(name) for name in row.get("asks", ())),
    )
