"""The journey of a build: plan -> cargo -> component -> package -> archive, for one project.

Warnings are said as they are found; with `strict` they end the build before cargo compiles anything that is
not needed to find them.  Nothing but the finished archive is written outside cargo's target folder, and it
replaces the one before in one step.  A project that nothing compiles takes the short way of `build.folder`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from aos_cli.build import cargo as cargo_room
from aos_cli.build.cargo import Artifact, Cargo, Project
from aos_cli.build.cargo_config import CargoConfig, cargo_home, read_cargo_config
from aos_cli.build.component import make_component
from aos_cli.build.contents import collect_extras, stage_interfaces, write_package
from aos_cli.build.folder import build_folder
from aos_cli.build.freshness import (
    owners,
    read_sources,
    record_file,
    record_folder,
    render_record,
    stale_sources,
)
from aos_cli.build.kinds import Kind, read_kind
from aos_cli.build.package import Wit, pack
from aos_cli.build.plan import (
    Source,
    bind_manifest,
    manifest_warnings,
    named_files,
    read_source,
    reference_warnings,
)
from aos_cli.build.process import PROBE_TIMEOUT_S, Command, Sink, run
from aos_cli.build.record import BuildRecord
from aos_cli.build.request import Request, Talk
from aos_cli.build.rustflags import TARGET, Flags, decide_flags
from aos_cli.build.toolchain import Toolchain, choose_toolchain, probe_environ
from aos_cli.console import Console, safe
from aos_runtime.errors import AosError, Issue

__all__ = ["Request", "build_project"]

CONTRACTS_FILE = Path("wit") / "astrid-contracts.wit"
_MAX_CONTRACTS_BYTES = 4 * 1024 * 1024
_LOCK_WAIT_S = 3600.0


def build_project(request: Request, *, environ: Mapping[str, str], console: Console) -> BuildRecord:
    """Build the project in `request.folder` into `request.output/<package>.capsule`.

    Raises what each room raises; an archive from an earlier build stays as it was then.
    """
    kind = Kind.MCP if request.mcp_json else read_kind(request.folder)
    if kind is not Kind.CARGO:
        return build_folder(request, kind, console=console)
    return _build_crate(request, environ, console)


def _build_crate(request: Request, environ: Mapping[str, str], console: Console) -> BuildRecord:
    began = time.monotonic()
    talk = Talk(console=console, strict=request.strict)
    with _shown(console) as show:
        config = read_cargo_config(request.folder, environ)
        toolchain = _toolchain(request, config, environ, talk)
        cargo = _cargo(request, toolchain, environ, console, show)
        project = cargo_room.read_project(cargo)
        source, contracts = _plan(request, project, talk)
        extras = collect_extras(request.folder, named_files(source.manifest, request.folder))
        wit = _wit(request, project, contracts, talk)
        cargo = _with_flags(cargo, project, toolchain, config, talk)
        artifact, core = _compile(request, cargo, project, talk)
    component = make_component(core, artifact.libraries)
    bound = bind_manifest(source, project.stem, component.data)
    for change in bound.changes:
        talk.note(f"note: in the archive's Capsule.toml {change}")
    named = (f"{project.stem}.wasm", component.data)
    packed = pack(bound.data, named, extras, wit, compression=request.compression, seed=request.seed)
    path = write_package(request, project.package.name, packed, talk)
    return BuildRecord(
        path=path,
        manifest=bound.manifest,
        packed=packed,
        component=component,
        sdk=project.sdk.version if project.sdk else None,
        toolchain=toolchain,
        profile="debug" if request.debug else "release",
        compression=request.compression,
        is_fresh=artifact.is_fresh,
        warnings=tuple(talk.warnings),
        duration_s=time.monotonic() - began,
    )


@contextlib.contextmanager
def _shown(console: Console) -> Iterator[Sink]:
    """Where cargo's own words go: stderr as they come, or, with -q, only where the build fails."""
    kept = bytearray()

    def show(chunk: bytes) -> None:
        if console.quiet:
            kept.extend(chunk)
        else:
            sys.stderr.flush()
            sys.stderr.buffer.write(chunk)
            sys.stderr.buffer.flush()

    try:
        yield show
    except AosError:
        if kept and console.quiet < 2:
            console.raw_error(kept.decode("utf-8", "replace"))
        raise


def _toolchain(request: Request, config: CargoConfig, environ: Mapping[str, str], talk: Talk) -> Toolchain:
    rustc = environ.get("RUSTC") or environ.get("CARGO_BUILD_RUSTC") or config.rustc or "rustc"
    strictly = request.locked and not request.any_toolchain
    chosen = choose_toolchain(request.folder, environ, rustc=rustc, locked=strictly)
    if chosen.problem is not None:
        name = chosen.name or chosen.compiler.rustc
        message = f"{chosen.problem}; building with {name} (rustc {chosen.compiler.release})"
        talk.warn(Issue(message=message, hint=f"to build with the pinned one, run `{chosen.fix}`"))
    return chosen


def _cargo(
    request: Request, toolchain: Toolchain, environ: Mapping[str, str], console: Console, show: Sink
) -> Cargo:
    switches = (("--locked", request.locked), ("--offline", request.offline))
    return Cargo(
        program=toolchain.cargo,
        folder=request.folder,
        environ={**_terminal(console), **probe_environ(environ), **toolchain.environ},
        switches=tuple(switch for switch, is_on in switches if is_on),
        show=show,
    )


def _terminal(console: Console) -> dict[str, str]:
    """Cargo writes into a pipe of ours; what it would do on the terminal behind it is told in variables."""
    color = {"CARGO_TERM_COLOR": "always" if console.paints_stderr else "never"}
    if console.quiet or not sys.stderr.isatty():
        return color
    width = str(os.get_terminal_size(sys.stderr.fileno()).columns or 80)
    return {**color, "CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": width}


def _plan(request: Request, project: Project, talk: Talk) -> tuple[Source, bytes | None]:
    """Read the manifest, and say everything that is doubtful before cargo starts to compile."""
    source, missing = read_source(request.folder, project.package)
    doubtful, notes = manifest_warnings(source.manifest, project.package)
    for issue in notes:
        talk.note(f"note: {issue.render()}")
    contracts = _read_contracts(project)
    text = contracts.decode("utf-8", "replace") if contracts is not None else None
    references = reference_warnings(source, text)
    talk.doubt(*((missing,) if missing else ()), *doubtful, *references, *_sdk_warnings(project))
    return source, contracts


def _sdk_warnings(project: Project) -> tuple[Issue, ...]:
    if project.sdk is None or project.sdk.version != "0.7.0":
        return ()
    message = (
        "astrid-sdk is locked to 0.7.0, whose tools are never found: its describe returns and never publishes"
    )
    return (Issue(message=message, file="Cargo.lock", hint="run `cargo update -p astrid-sdk`"),)


def _read_contracts(project: Project) -> bytes | None:
    if project.sdk is None:
        return None
    try:
        with (project.sdk.folder / CONTRACTS_FILE).open("rb") as file:
            return file.read(_MAX_CONTRACTS_BYTES)
    except FileNotFoundError:
        return None


def _with_flags(
    cargo: Cargo, project: Project, toolchain: Toolchain, config: CargoConfig, talk: Talk
) -> Cargo:
    """Cargo with the one override of compiler flags."""

    def facts() -> frozenset[str]:
        arguments = (toolchain.compiler.rustc, "--print", "cfg", "--target", TARGET)
        command = Command(
            arguments=arguments, folder=cargo.folder, environ=cargo.environ, timeout_s=PROBE_TIMEOUT_S
        )
        return frozenset(run(command).stdout.decode().splitlines())

    remaps = project.shared_remaps(toolchain.compiler, cargo_home(cargo.environ))
    flags: Flags = decide_flags(config, cargo.environ, facts, remaps)
    if flags.getrandom_added:
        talk.note(
            'note: the flag --cfg=getrandom_backend="custom" was added: .cargo/config.toml does not set it,'
            " and plain `cargo build` fails without it"
        )
    for target in config.build_targets:
        if target != TARGET:
            talk.note(f"note: .cargo/config.toml names the target {target}; a capsule is built for {TARGET}")
    return replace(cargo, environ={**cargo.environ, **flags.environ()})


def _compile(request: Request, cargo: Cargo, project: Project, talk: Talk) -> tuple[Artifact, bytes]:
    """Let cargo build, make sure that what it calls fresh is from these sources, and read the module."""
    from aos_runtime.store.files import FileLock, write_atomic

    folder = record_folder(project)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "build.lock")
    if not lock.try_acquire():
        talk.note(f"waiting for another build in {project.target_folder} (pid {lock.holder})")
        lock.acquire(_LOCK_WAIT_S)
    with lock:
        record = record_file(project, debug=request.debug)
        artifact = cargo_room.build(cargo, project, debug=request.debug)
        sources = read_sources(artifact)
        stale = stale_sources(record, project, sources) if artifact.is_fresh else ()
        if stale is None or stale:
            why = f"{stale[0]} differs" if stale else "nothing tells which sources it was made from"
            talk.note(f"note: cargo called its artifact fresh, but {safe(why)}: building it again")
            cargo_room.forget(cargo, project, owners(project, stale or ()), debug=request.debug)
            artifact = cargo_room.build(cargo, project, debug=request.debug)
            sources = read_sources(artifact)
        if not artifact.is_fresh:
            write_atomic(record, render_record(project, sources), mode=0o644, sync=False)
        return artifact, artifact.path.read_bytes()


def _wit(request: Request, project: Project, contracts: bytes | None, talk: Talk) -> Wit:
    sdk = project.sdk
    why = f"{sdk.name} {sdk.version} brings none" if sdk else "no astrid-sdk is in the graph"
    no_contracts = f"the contracts were not packed: {why}"
    return stage_interfaces(request.folder, contracts, talk, no_contracts=no_contracts)
