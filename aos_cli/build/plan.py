"""The manifest of a build: read, checked, and bound to the artifact that is packed with it.

The archive's manifest is the author's file with comments and form kept; only `file` of the component, a
`hash` that is there already, and a missing `[[component]]` are written (build-install.md 2.8; cases MAN-03,
MAN-10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aos_cli.build.cargo import Crate
from aos_runtime import HOST_VERSION
from aos_runtime.capsule.manifest import MANIFEST_FILE, Manifest, check_host_version, parse_manifest
from aos_runtime.capsule.manifest_sections import RETIRED_SECTIONS
from aos_runtime.capsule.manifest_text import load_toml
from aos_runtime.capsule.paths import path_problem, without_dots
from aos_runtime.errors import AosError, InvalidInput, Issue

if TYPE_CHECKING:
    from tomlkit import TOMLDocument

MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The author's manifest: its bytes and what they mean."""

    data: bytes
    manifest: Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The manifest that is packed.  `changes` says what was written into it, one sentence each."""

    data: bytes
    manifest: Manifest
    changes: tuple[str, ...]


def read_source(folder: Path, package: Crate) -> tuple[Source, Issue | None]:
    """Read `Capsule.toml`, or make the smallest one there can be, with an issue that says so.

    InvalidInput `manifest-*` with all issues; `manifest-symlink` where the file is a link.
    """
    source = read_manifest(folder)
    if source is not None:
        return source, None
    data = _smallest(package)
    message = f"there is no {MANIFEST_FILE}: one was made, and with it the capsule cannot use the bus"
    hint = "write one with [publish] and [subscribe] rows; `aos capsule new` shows the form"
    issue = Issue(message=message, file=MANIFEST_FILE, hint=hint)
    return Source(data=data, manifest=parse_manifest(data)), issue


def read_manifest(folder: Path) -> Source | None:
    """Read `Capsule.toml`; None where there is none.  Raises as `read_source`."""
    path = folder / MANIFEST_FILE
    if path.is_symlink():
        raise InvalidInput(
            "symlink-refused",
            f"{path} is a symbolic link",
            hint="put the manifest itself there; nothing is packed through a link",
            path=str(path),
        )
    if not path.is_file():
        return None
    with path.open("rb") as file:
        data = file.read(MAX_MANIFEST_BYTES).removeprefix(_BOM)
    return Source(data=data, manifest=parse_manifest(data))


def manifest_warnings(
    manifest: Manifest, package: Crate | None
) -> tuple[tuple[Issue, ...], tuple[Issue, ...]]:
    """What is doubtful about a manifest (`--strict` refuses it), and what is only noted (retired).

    `package` is the crate that it must agree with, where there is one.
    """
    retired = tuple(f"`{section}` " for section in RETIRED_SECTIONS)
    notes = tuple(issue for issue in manifest.warnings if issue.message.startswith(retired))
    doubtful = [issue for issue in manifest.warnings if issue not in notes]
    if package is not None and manifest.version != package.version:
        message = f"the version is {manifest.version} here and {package.version} in Cargo.toml"
        hint = "the capsule is published under the version in Capsule.toml"
        doubtful.append(Issue(message=message, file=MANIFEST_FILE, hint=hint))
    try:
        check_host_version(manifest, HOST_VERSION)
    except AosError as error:
        doubtful.append(Issue(message=error.message, file=MANIFEST_FILE, hint=error.hint))
    return tuple(doubtful), notes


def reference_warnings(source: Source, contracts: str | None) -> tuple[Issue, ...]:
    """The WIT references that do not resolve against the contracts of the SDK in the graph."""
    from aos_runtime.capsule.contracts import resolve_wit_reference

    if contracts is None:
        return ()
    _, positions = load_toml(source.data, file=MANIFEST_FILE)
    rows = [("publish", row.topic, row.wit) for row in source.manifest.publish]
    rows += [("subscribe", row.topic, row.wit) for row in source.manifest.subscribe]
    issues = []
    for section, topic, reference in rows:
        issue = resolve_wit_reference(reference, contracts)
        if issue is not None:
            place = positions.find((section, topic))
            line, column = (place.line, place.column) if place else (None, None)
            issues.append(replace(issue, file=MANIFEST_FILE, line=line, column=column))
    return tuple(issues)


def named_files(manifest: Manifest, folder: Path) -> tuple[str, ...]:
    """The files and folders besides the component that the manifest names, as relative paths.

    An `mcp_server` command counts where it is a path inside the project, not where it is a program on PATH;
    an argument where it is a file of the project that is not hidden (a secret may lie in `.env`).
    """
    named = [row.file for row in manifest.commands if row.file]
    named += [row.file for row in manifest.context_files if row.file]
    for server in manifest.mcp_servers:
        command = server.command or ""
        is_inside = "/" in command or (folder / command).exists()
        if command and not command.startswith("/") and is_inside:
            named.append(command)
        named += [without_dots(argument) for argument in server.args if _is_own_file(folder, argument)]
    return tuple(dict.fromkeys(name.removeprefix("./") for name in named))


def unpacked_arguments(manifest: Manifest, folder: Path, packed: Collection[str]) -> tuple[Issue, ...]:
    """The arguments of servers that name something of the project which is in no folder of `packed` and is
    not packed for their sake: a hidden file, or a folder.
    """
    return tuple(
        Issue(
            message=f"server `{server.id}`: its argument {argument} is not packed: it is {what}",
            hint="put what the server needs into assets/, and name it there",
        )
        for server in manifest.mcp_servers
        for argument in server.args
        if (what := _why_not_packed(folder, without_dots(argument), packed)) is not None
    )


def _why_not_packed(folder: Path, path: str, packed: Collection[str]) -> str | None:
    if path_problem(path) is not None or path == MANIFEST_FILE or path.partition("/")[0] in packed:
        return None
    if (folder / path).is_dir():
        return "a folder"
    return "hidden" if (folder / path).is_file() and not _is_own_file(folder, path) else None


def _is_own_file(folder: Path, argument: str) -> bool:
    path = without_dots(argument)
    if path_problem(path) is not None or path == MANIFEST_FILE:
        return False
    return not any(part.startswith(".") for part in path.split("/")) and (folder / path).is_file()


def bind_manifest(source: Source, stem: str, component: bytes) -> Bound:
    """Make the manifest say what is packed: `<stem>.wasm`, and its digest where it gives one.

    InvalidInput `manifest-components` where there is not exactly one component to bind.
    """
    file = f"{stem}.wasm"
    rows = source.manifest.components
    if len(rows) > 1:
        raise InvalidInput(
            "manifest-components",
            f"{MANIFEST_FILE} has {len(rows)} components, and the project makes one ({file})",
            hint="keep one [[component]], and build the others as capsules of their own",
        )
    if rows and rows[0].file == file and rows[0].hash is None:
        return Bound(data=source.data, manifest=source.manifest, changes=())
    data, changes = _rewrite(source, file, component)
    return Bound(data=data, manifest=parse_manifest(data), changes=tuple(changes))


def _rewrite(source: Source, file: str, component: bytes) -> tuple[bytes, list[str]]:
    import tomlkit

    document = tomlkit.parse(source.data.decode("utf-8"))
    if not source.manifest.components:
        _append_component(document, source.manifest.name, file)
        return tomlkit.dumps(document).encode(), [f"[[component]] was added: file = {file!r}"]
    row: Any = document["component"][0]
    key = "entrypoint" if "entrypoint" in row else "file"
    changes = []
    if row[key] != file:
        changes.append(f"the component's {key} was {row[key]!r}, and is {file!r} as cargo made it")
        row[key] = file
    if "hash" in row:
        digest = _digest_like(str(row["hash"]), component)
        if row["hash"] != digest:
            changes.append(f"the component's hash is now {digest}")
            row["hash"] = digest
    return tomlkit.dumps(document).encode(), changes


def _append_component(document: TOMLDocument, name: str, file: str) -> None:
    import tomlkit

    row = tomlkit.table()
    row.update({"id": name, "file": file, "type": "executable"})
    rows = tomlkit.aot()
    rows.append(row)
    document["component"] = rows


def _digest_like(text: str, data: bytes) -> str:
    """The digest of `data` in the algorithm that `text` names (`sha256:` or `blake3:`)."""
    if text.startswith("sha256:"):
        return "sha256:" + hashlib.sha256(data).hexdigest()
    from blake3 import blake3

    return "blake3:" + blake3(data).hexdigest()


def _smallest(package: Crate) -> bytes:
    rows = (f'name = "{package.name}"', f'version = "{package.version}"', 'description = ""')
    return ("[package]\n" + "\n".join(rows) + "\n").encode()


def strict_failure(issues: Iterable[Issue]) -> InvalidInput | None:
    """The error of `--strict`: every warning at once."""
    found = tuple(issues)
    if not found:
        return None
    message = found[0].render() if len(found) == 1 else f"--strict refuses {len(found)} warnings"
    return InvalidInput(
        "strict-warnings",
        message,
        hint=found[0].hint or "correct them, or build without --strict",
        issues=found,
    )
