"""What is read out of cargo's metadata and messages, with a stand-in that prints them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aos_cli.build.cargo import Artifact, Cargo, Project, build, read_project
from aos_cli.build.process import Sink
from aos_cli.build.rustflags import Remap
from aos_cli.build.toolchain import Compiler
from aos_runtime.errors import AosError, BuildFailed, InvalidInput, PeerFault, Unavailable


def _ignore(_: bytes) -> None:
    """Shows nothing."""


class Stand:
    """A project folder and a `cargo` that answers from files and writes down how it was called."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / "demo"
        self.folder.mkdir()
        (self.folder / "Cargo.toml").touch()
        self.program = root / "cargo"
        self.program.write_text(
            f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {root}/called\ncat {root}/stderr >&2\ncat {root}/stdout\n"
            f"exit $(cat {root}/status)\n"
        )
        self.program.chmod(0o755)
        self.answers("")

    def answers(self, stdout: str, *, stderr: str = "", status: int = 0) -> None:
        (self.root / "stdout").write_text(stdout)
        (self.root / "stderr").write_text(stderr)
        (self.root / "status").write_text(str(status))

    @property
    def called(self) -> list[str]:
        return (self.root / "called").read_text().splitlines()

    def cargo(self, *switches: str, show: Sink = _ignore) -> Cargo:
        environ = {"PATH": "/usr/bin:/bin"}
        return Cargo(
            program=str(self.program), folder=self.folder, environ=environ, switches=switches, show=show
        )

    def package(self, **changes: Any) -> dict[str, Any]:
        target = {"name": "demo", "kind": ["cdylib"], "crate_types": ["cdylib"]}
        return {
            "id": f"path+file://{self.folder}#demo@0.1.0",
            "name": "demo",
            "version": "0.1.0",
            "source": None,
            "manifest_path": str(self.folder / "Cargo.toml"),
            "targets": [target],
            **changes,
        }

    def metadata(self, *packages: dict[str, Any]) -> str:
        value = {
            "packages": packages,
            "workspace_root": str(self.folder),
            "target_directory": str(self.folder / "target"),
        }
        return json.dumps(value)

    def project(self) -> Project:
        self.answers(self.metadata(self.package()))
        return read_project(self.cargo())

    def artifact(self, *names: str, **changes: Any) -> str:
        message = {
            "reason": "compiler-artifact",
            "package_id": self.package()["id"],
            "target": {"name": "demo", "kind": ["cdylib"], "crate_types": ["cdylib"]},
            "profile": {"test": False},
            "filenames": [str(self.folder / "target" / name) for name in names],
            "fresh": False,
            **changes,
        }
        return json.dumps(message) + "\n"

    def module(self, name: str = "demo.wasm") -> Path:
        path = self.folder / "target" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"\0asm")
        return path


@pytest.fixture
def stand(tmp_path: Path) -> Stand:
    return Stand(tmp_path)


def code_of(action: Any, *arguments: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(AosError) as caught:
        action(*arguments, **options)
    return caught.value.code, caught.value.message


def test_the_package_of_the_folder_is_found_among_all(stand: Stand) -> None:
    sdk = stand.package(
        id="registry#astrid-sdk@0.7.2",
        name="astrid-sdk",
        version="0.7.2",
        source="registry",
        manifest_path="/cargo/registry/src/x/astrid-sdk-0.7.2/Cargo.toml",
    )
    stand.answers(stand.metadata(sdk, stand.package()))
    project = read_project(stand.cargo("--offline"))
    assert (project.package.name, project.stem, project.target_folder) == (
        "demo",
        "demo",
        stand.folder / "target",
    )
    assert project.sdk is not None and project.sdk.version == "0.7.2"
    assert stand.called == [
        "metadata",
        "--format-version",
        "1",
        "--filter-platform",
        "wasm32-unknown-unknown",
        "--offline",
    ]


def test_a_capsule_called_like_the_sdk_is_not_its_own_sdk(stand: Stand) -> None:
    stand.answers(stand.metadata(stand.package(name="astrid-sdk")))
    assert read_project(stand.cargo()).sdk is None


@pytest.mark.parametrize(
    ("targets", "stem"),
    [
        ([("core-logic", ["cdylib"])], "core_logic"),
        ([("demo", ["cdylib", "rlib"])], "demo"),
        ([("demo", ["cdylib"]), ("tool", ["bin"])], "demo"),
    ],
)
def test_bld_17_the_cdylib_names_the_module(stand: Stand, targets: Any, stem: str) -> None:
    rows = [{"name": name, "kind": types, "crate_types": types} for name, types in targets]
    stand.answers(stand.metadata(stand.package(targets=rows)))
    assert read_project(stand.cargo()).stem == stem


@pytest.mark.parametrize("types", [["lib"], ["bin"]])
def test_bld_17_without_a_cdylib_the_line_to_write_is_said(stand: Stand, types: list[str]) -> None:
    rows = [
        {"name": "demo", "kind": types, "crate_types": types},
        {"name": "show", "kind": ["example"], "crate_types": ["cdylib"]},
    ]
    stand.answers(stand.metadata(stand.package(targets=rows)))
    with pytest.raises(InvalidInput) as caught:
        read_project(stand.cargo())
    assert caught.value.code == "crate-type"
    assert caught.value.hint == 'write crate-type = ["cdylib"] below [lib] in Cargo.toml'


def test_a_workspace_without_a_package_is_not_built(stand: Stand) -> None:
    member = stand.package(manifest_path=str(stand.folder / "member" / "Cargo.toml"))
    stand.answers(stand.metadata(member))
    assert code_of(read_project, stand.cargo())[0] == "cargo-package"


def test_bld_08_no_cargo(stand: Stand) -> None:
    stand.program.unlink()
    with pytest.raises(Unavailable) as caught:
        read_project(stand.cargo())
    assert caught.value.code == "cargo-missing"
    assert caught.value.hint.startswith("install Rust from https://rustup.rs")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"packages": [{}]}'])
def test_metadata_of_another_form_is_a_fault_of_cargo(stand: Stand, text: str) -> None:
    stand.answers(text)
    with pytest.raises(PeerFault):
        read_project(stand.cargo())


def test_cargos_own_words_are_shown_and_then_explained(stand: Stand) -> None:
    shown = bytearray()
    words = (
        "error: lock file version `4` was found, but this version of Cargo does not understand this lock file"
    )
    stand.answers("", stderr=words, status=101)
    code, message = code_of(read_project, stand.cargo(show=shown.extend))
    assert (code, message) == (
        "cargo-too-old",
        "this cargo is too old for the project's lock file (version 4)",
    )
    assert shown.decode() == words


def test_bld_01_the_module_is_the_one_that_cargo_names(stand: Stand) -> None:
    project, module = stand.project(), stand.module()
    library = stand.artifact(
        "libserde.rlib", package_id="x", target={"name": "serde", "crate_types": ["lib"]}
    )
    other = stand.artifact("other.wasm", package_id="x")
    test = stand.artifact("test.wasm", profile={"test": True})
    noise = 'a build script prints\n{"reason": "build-finished"}\n{broken\n'
    stand.answers(library + other + test + noise + stand.artifact("demo.wasm", "libdemo.rlib"))
    found = build(stand.cargo("--locked"), project, debug=False)
    libraries = {
        "serde": stand.folder / "target" / "libserde.rlib",
        "demo": stand.folder / "target" / "libdemo.rlib",
    }
    assert found == Artifact(path=module, is_fresh=False, libraries=libraries)
    assert found.dependency_file == stand.folder / "target" / "demo.d"
    assert stand.called == [
        "rustc",
        "--lib",
        "--package",
        project.package.id,
        "--target",
        "wasm32-unknown-unknown",
        "--message-format",
        "json-render-diagnostics",
        "--release",
        "--locked",
        "--",
        f"--remap-path-prefix={stand.folder}=/capsule",
    ]


@pytest.mark.parametrize("names", [[], ["libdemo.rlib"], ["demo.wasm", "again.wasm"]])
def test_bld_02_none_or_several_modules_are_an_error(stand: Stand, names: list[str]) -> None:
    project = stand.project()
    stand.answers(stand.artifact(*names))
    assert code_of(build, stand.cargo(), project, debug=True)[0] == "artifact-ambiguous"
    assert "--release" not in stand.called


@pytest.mark.parametrize("kind", ["absent", "link", "outside"])
def test_bld_02_what_is_no_regular_file_of_the_target_folder_is_refused(stand: Stand, kind: str) -> None:
    project, module = stand.project(), stand.module("real.wasm")
    name = "demo.wasm"
    if kind == "link":
        (module.parent / name).symlink_to(module)
    elif kind == "outside":
        name = "../../outside.wasm"
        (stand.root / "outside.wasm").write_bytes(b"\0asm")
    stand.answers(stand.artifact(name))
    with pytest.raises(BuildFailed) as caught:
        build(stand.cargo(), project, debug=False)
    assert caught.value.code == "artifact-irregular"


def test_folders_of_this_machine_get_names_that_are_the_same_anywhere(stand: Stand) -> None:
    cargo_home, vendored = stand.root / "cargo-home", stand.root / "vendor"
    registry = cargo_home / "registry" / "src" / "index-0123"
    crates = [
        stand.package(),
        stand.package(id="a", source="r", manifest_path=str(registry / "a-1" / "Cargo.toml")),
        stand.package(id="b", source="r", manifest_path=str(registry / "b-1" / "Cargo.toml")),
        stand.package(id="c", source="r", manifest_path=str(vendored / "c" / "Cargo.toml")),
        stand.package(id="d", name="near", manifest_path=str(stand.folder / "near" / "Cargo.toml")),
        stand.package(id="e", name="far", manifest_path=str(stand.root / "far" / "Cargo.toml")),
    ]
    stand.answers(stand.metadata(*crates))
    project = read_project(stand.cargo())
    sysroot = Path("/rust")
    compiler = Compiler(rustc="rustc", release="1", commit="c0ffee", sysroot=sysroot, libraries=sysroot)
    assert project.shared_remaps(compiler, cargo_home) == (
        Remap(folder=sysroot / "lib" / "rustlib" / "src" / "rust", name="/rustc/c0ffee"),
        Remap(folder=cargo_home, name="/cargo"),
        Remap(folder=stand.folder / "target", name="/target"),
        Remap(folder=registry, name="/cargo/registry"),
        Remap(folder=vendored, name="/cargo/registry"),
        Remap(folder=stand.root / "far", name="/path/far"),
    )
    assert project.own_remap == Remap(folder=stand.folder, name="/capsule")
