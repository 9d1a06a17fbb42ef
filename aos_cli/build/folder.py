"""The short journey of a build: a project that nothing compiles, because it has no component.

Its manifest is the author's, or made from a list of MCP servers (`build.mcp_json`).  No cargo, no compiler.
"""

from __future__ import annotations

import time
from pathlib import Path

from aos_cli.build.contents import collect_extras, stage_interfaces, write_package
from aos_cli.build.kinds import Kind
from aos_cli.build.mcp_json import convert_file
from aos_cli.build.package import OPAQUE_FOLDERS, WIT_FOLDER, Wit, pack
from aos_cli.build.plan import Source, manifest_warnings, named_files, read_manifest, unpacked_arguments
from aos_cli.build.record import BuildRecord
from aos_cli.build.request import Request, Talk
from aos_cli.console import Console
from aos_runtime.capsule.manifest import MANIFEST_FILE, Manifest, parse_manifest
from aos_runtime.errors import Issue, NotFound


def build_folder(request: Request, kind: Kind, *, console: Console) -> BuildRecord:
    """Pack the project in `request.folder`, of any kind but cargo's, into `request.output`.

    Raises what each room raises; nothing is written before everything was read and found good.
    """
    began = time.monotonic()
    talk = Talk(console=console, strict=request.strict)
    if request.debug:
        talk.note("note: --debug changes nothing: this project has nothing to compile")
    if kind is Kind.MANIFEST:
        source, named = _plan_manifest(request.folder, talk)
        wit = _wit(request.folder, talk)
    else:
        source, named = _plan_servers(request.mcp_json or request.folder / kind.value, talk)
        wit = Wit()
    manifest = source.manifest
    extras = collect_extras(request.folder, (*named_files(manifest, request.folder), *named))
    talk.warn(*unpacked_arguments(manifest, request.folder, (*OPAQUE_FOLDERS, WIT_FOLDER, *named)))
    _look(manifest, talk)
    packed = pack(source.data, None, extras, wit, compression=request.compression, seed=request.seed)
    path = write_package(request, manifest.name, packed, talk)
    return BuildRecord(
        path=path,
        manifest=manifest,
        packed=packed,
        component=None,
        sdk=None,
        toolchain=None,
        profile=None,
        compression=request.compression,
        is_fresh=False,
        warnings=tuple(talk.warnings),
        duration_s=time.monotonic() - began,
    )


def _plan_manifest(folder: Path, talk: Talk) -> tuple[Source, tuple[str, ...]]:
    """The author's manifest.  NotFound `cargo-project-missing` where it has a component to compile."""
    source = read_manifest(folder)
    if source is None or source.manifest.component is not None:
        raise NotFound(
            "cargo-project-missing",
            f"{MANIFEST_FILE} has a [[component]], and there is no Cargo.toml in {folder} to make it from",
            hint="name the folder of the Rust project, or remove [[component]]",
            path=str(folder),
        )
    if (folder / Kind.MCP.value).is_file():
        talk.note(f"note: mcp.json is not read: {MANIFEST_FILE} says what the capsule is")
    doubtful, notes = manifest_warnings(source.manifest, None)
    for issue in notes:
        talk.note(f"note: {issue.render()}")
    talk.doubt(*doubtful)
    return source, ()


def _plan_servers(file: Path, talk: Talk) -> tuple[Source, tuple[str, ...]]:
    """A manifest made from a list of MCP servers, and the folders that are packed with it."""
    converted = convert_file(file)
    talk.doubt(*converted.warnings)
    manifest = parse_manifest(converted.data, file=f"{MANIFEST_FILE} made from {file.name}")
    for row in manifest.env:
        talk.note(f"note: {row.key} is asked for when the capsule is installed; its value is not packed")
    return Source(data=converted.data, manifest=manifest), converted.folders


def _wit(folder: Path, talk: Talk) -> Wit:
    if not (folder / WIT_FOLDER).exists():
        return Wit()
    no_contracts = "the contracts were not packed: a project without a crate has no SDK that brings them"
    return stage_interfaces(folder, None, talk, no_contracts=no_contracts)


def _look(manifest: Manifest, talk: Talk) -> None:
    """Say what will not run."""
    if manifest.handlers:
        message = "[subscribe] binds handlers, and there is no component that has them"
        talk.doubt(Issue(message=message, file=MANIFEST_FILE, hint="remove `handler`, or add the component"))
    if not any(row.type == "stdio" for row in manifest.mcp_servers):
        message = "the capsule starts nothing: it has no component and no stdio server"
        hint = (
            "its files are there for others to read; to run something, add a component or an [[mcp_server]]"
        )
        talk.warn(Issue(message=message, file=MANIFEST_FILE, hint=hint))
