"""What cargo says about a project, and the artifact that it makes of it.

Everything is taken from cargo's own metadata and messages: no path is guessed and no folder is searched
(build-install.md 2.4, 2.5; cases BLD-01, BLD-02, BLD-17).  Cargo's artifact is only ever read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aos_cli.build.diagnose import explain_failure
from aos_cli.build.process import Command, Sink, run
from aos_cli.build.rustflags import TARGET, Remap, remap_flags
from aos_cli.build.toolchain import INSTALL_RUST, Compiler
from aos_runtime.errors import BuildFailed, InvalidInput, PeerFault, Unavailable

METADATA_TIMEOUT_S = 900.0
BUILD_TIMEOUT_S = 3600.0
SDK = "astrid-sdk"
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """How cargo is called for one build: program, folder, environment, and the author's switches."""

    program: str
    folder: Path
    environ: Mapping[str, str]
    switches: tuple[str, ...]
    show: Sink

    def command(self, *arguments: str, timeout_s: float, trailing: tuple[str, ...] = ()) -> Command:
        return Command(
            arguments=(self.program, *arguments, *self.switches, *trailing),
            folder=self.folder,
            environ=self.environ,
            timeout_s=timeout_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Crate:
    """A package of the graph.  `source` is None for one that lies in a folder of the author's."""

    id: str
    name: str
    version: str
    source: str | None
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The package to build, its one cdylib `stem`, and the graph around it."""

    package: Crate
    stem: str
    crates: tuple[Crate, ...]
    workspace: Path
    target_folder: Path

    @property
    def sdk(self) -> Crate | None:
        """The SDK crate in the graph: where the canonical contracts come from."""
        others = (crate for crate in self.crates if crate.id != self.package.id)
        return next((crate for crate in others if crate.name == SDK), None)

    def shared_remaps(self, compiler: Compiler, cargo_home: Path) -> tuple[Remap, ...]:
        """The folders that the compilation of any crate may leave in the artifact, but for the author's own.

        They depend on user and target folder only, so that projects which share a target folder share what is
        compiled there.
        """
        rust_source = compiler.sysroot / "lib" / "rustlib" / "src" / "rust"
        registry = {crate.folder.parent for crate in self.crates if crate.source is not None}
        near = [crate for crate in self.crates if crate.source is None]
        outside = [crate for crate in near if not crate.folder.is_relative_to(self.workspace)]
        return (
            Remap(folder=rust_source, name=f"/rustc/{compiler.commit}"),
            Remap(folder=cargo_home, name="/cargo"),
            Remap(folder=self.target_folder, name="/target"),
            *(Remap(folder=folder, name="/cargo/registry") for folder in sorted(registry)),
            *(Remap(folder=crate.folder, name=f"/path/{crate.name}") for crate in outside),
        )

    @property
    def own_remap(self) -> Remap:
        """The author's folder, which only the capsule's own crate can leave in the artifact."""
        return Remap(folder=self.workspace, name="/capsule")


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """The core module that cargo made.  `is_fresh`: nothing was to do.  `libraries`: rlibs by crate."""

    path: Path
    is_fresh: bool
    libraries: Mapping[str, Path]

    @property
    def dependency_file(self) -> Path:
        """The make-style list of the sources that it was made from."""
        return self.path.with_suffix(".d")


def read_project(cargo: Cargo) -> Project:
    """Ask cargo what lies in the project's folder.

    Unavailable `cargo-missing`; InvalidInput `crate-type`, `cargo-package`; BuildFailed as cargo says.
    """
    arguments = ("metadata", "--format-version", "1", "--filter-platform", TARGET)
    command = cargo.command(*arguments, timeout_s=METADATA_TIMEOUT_S)
    try:
        finished = run(command, show=cargo.show)
    except Unavailable as error:
        raise Unavailable("cargo-missing", error.message, hint=INSTALL_RUST) from error
    if finished.status:
        raise explain_failure(finished.stderr, "cargo could not read the project")
    try:
        return _project(json.loads(finished.stdout), cargo.folder)
    except (ValueError, KeyError, TypeError) as error:
        raise PeerFault(
            "cargo-metadata",
            f"cargo's metadata has another form than format version 1: {error}",
            hint="check which cargo is first on PATH",
        ) from error


def build(cargo: Cargo, project: Project, *, debug: bool) -> Artifact:
    """Compile the project's library for the capsule target and find its module in cargo's messages.

    BuildFailed with our words about a known failure, after cargo's own; `artifact-ambiguous`
    or `artifact-irregular` where the messages do not name one regular file.
    """
    arguments = ["rustc", "--lib", "--package", project.package.id, "--target", TARGET]
    arguments += ["--message-format", "json-render-diagnostics", *([] if debug else ["--release"])]
    own = remap_flags([project.own_remap])
    messages = _Messages()
    command = cargo.command(*arguments, timeout_s=BUILD_TIMEOUT_S, trailing=("--", *own))
    finished = run(command, show=cargo.show, receive=messages.feed)
    if finished.status:
        raise explain_failure(finished.stderr, f"cargo could not build {project.package.name}")
    return _find_artifact(messages.artifacts, project)


def forget(cargo: Cargo, project: Project, names: Sequence[str], *, debug: bool) -> None:
    """Make cargo build these packages again, whatever their files' times say."""
    arguments = ["clean", "--target", TARGET, *([] if debug else ["--release"])]
    for name in names:
        arguments += ["--package", name]
    finished = run(cargo.command(*arguments, timeout_s=METADATA_TIMEOUT_S))
    if finished.status:
        raise explain_failure(finished.stderr, f"cargo could not clean {project.package.name}")


class _Messages:
    """Cargo's messages as they come, one JSON document a line; only artifacts are kept."""

    def __init__(self) -> None:
        self.artifacts: list[dict[str, object]] = []
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._rest += chunk
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if len(self._rest) > _MAX_MESSAGE_BYTES:
            raise PeerFault(
                "cargo-message",
                f"cargo sent a message of more than {_MAX_MESSAGE_BYTES} bytes",
                hint="check which cargo is first on PATH",
            )
        for line in lines:
            self._read(bytes(line))

    def _read(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            return  # a build script or macro that prints to stdout
        try:
            message = json.loads(line)
        except ValueError:
            return
        if isinstance(message, dict) and message.get("reason") == "compiler-artifact":
            self.artifacts.append(message)


def _project(metadata: Mapping[str, object], folder: Path) -> Project:
    packages: Sequence[Mapping[str, object]] = metadata["packages"]  # type: ignore[assignment]
    workspace = Path(str(metadata["workspace_root"]))
    package = _choose_package(packages, folder)
    return Project(
        package=_crate(package),
        stem=_choose_cdylib(package),
        crates=tuple(_crate(one) for one in packages),
        workspace=workspace,
        target_folder=Path(str(metadata["target_directory"])),
    )


def _choose_package(packages: Sequence[Mapping[str, object]], folder: Path) -> Mapping[str, object]:
    wanted = folder.resolve()
    for package in packages:
        if Path(str(package["manifest_path"])).parent.resolve() == wanted:
            return package
    raise InvalidInput(
        "cargo-package",
        f"{folder / 'Cargo.toml'} is a workspace without a package of its own",
        hint="build the folder of one of its members",
        path=str(folder),
    )


def _crate(package: Mapping[str, object]) -> Crate:
    source = package.get("source")
    return Crate(
        id=str(package["id"]),
        name=str(package["name"]),
        version=str(package["version"]),
        source=source if isinstance(source, str) else None,
        folder=Path(str(package["manifest_path"])).parent,
    )


def _choose_cdylib(package: Mapping[str, object]) -> str:
    targets: Sequence[Mapping[str, Sequence[str]]] = package["targets"]  # type: ignore[assignment]
    stems = [
        str(target["name"])
        for target in targets
        if "cdylib" in target["crate_types"] and "example" not in target["kind"]
    ]
    if len(stems) == 1:
        return stems[0].replace("-", "_")
    types = sorted({kind for target in targets for kind in target["crate_types"]})
    raise InvalidInput(
        "crate-type",
        f"{package['name']} has no cdylib to make a capsule of, only {', '.join(types) or 'no target'}",
        hint='write crate-type = ["cdylib"] below [lib] in Cargo.toml',
        file=str(package["manifest_path"]),
    )


def _find_artifact(artifacts: Sequence[Mapping[str, object]], project: Project) -> Artifact:
    own = [one for one in artifacts if _is_capsule(one, project)]
    paths = [path for one in own for path in _paths(one) if path.suffix == ".wasm"]
    if len(paths) != 1:
        tried = ", ".join(str(path) for path in paths) or "none"
        raise BuildFailed(
            "artifact-ambiguous",
            f"cargo named {len(paths)} modules of {project.package.name} where one was expected: {tried}",
            hint='check that [lib] has crate-type = ["cdylib"] and that no build configuration changes it',
        )
    _check_regular(paths[0], project)
    libraries = {
        str(_target(one).get("name")): path
        for one in artifacts
        for path in _paths(one)
        if path.suffix == ".rlib"
    }
    return Artifact(path=paths[0], is_fresh=all(one.get("fresh") is True for one in own), libraries=libraries)


def _is_capsule(message: Mapping[str, object], project: Project) -> bool:
    profile = message.get("profile")
    is_test = isinstance(profile, Mapping) and profile.get("test") is True
    types = _target(message).get("crate_types")
    is_cdylib = isinstance(types, list) and "cdylib" in types
    return message.get("package_id") == project.package.id and is_cdylib and not is_test


def _target(message: Mapping[str, object]) -> Mapping[str, object]:
    target = message.get("target")
    return target if isinstance(target, Mapping) else {}


def _paths(message: Mapping[str, object]) -> list[Path]:
    names = message.get("filenames")
    return [Path(name) for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _check_regular(path: Path, project: Project) -> None:
    root = project.target_folder.resolve()
    if path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(root):
        return
    raise BuildFailed(
        "artifact-irregular",
        f"the module that cargo named is no regular file of its target folder: {path}",
        hint=f"remove {path} and build again; the target folder is {root}",
        path=str(path),
    )
