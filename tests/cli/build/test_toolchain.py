"""Choosing a compiler, with stand-ins for rustc and rustup on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.rustflags import TARGET
from aos_cli.build.toolchain import Pin, choose_toolchain, find_pin, find_target_problem
from aos_runtime.errors import BuildFailed, Unavailable


class Machine:
    """A folder that stands for a machine: programs in `bin`, toolchains beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.project = root / "project"
        for folder in (self.bin, self.project):
            folder.mkdir()
        self.environ = {"PATH": str(self.bin)}
        self.toolchains: list[str] = []

    def program(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def rustc(self, path: Path, release: str, sysroot: Path, *, library: bool) -> None:
        libraries = sysroot / "lib" / "rustlib" / TARGET / "lib"
        script = (
            f'case "$1" in -vV) echo "rustc {release}"; echo "release: {release}";'
            ' echo "commit-hash: c0ffee";;'
            f' *) echo "{sysroot}"; echo "{libraries}";; esac'
        )
        self.program(path, script)
        if library:
            libraries.mkdir(parents=True)
            for crate in ("std", "core"):
                (libraries / f"lib{crate}-0123.rlib").touch()

    def toolchain(self, name: str, release: str, *, library: bool) -> None:
        folder = self.root / "toolchains" / name
        self.rustc(folder / "bin" / "rustc", release, folder, library=library)
        remark = " (active, default)" if not self.toolchains else ""
        self.toolchains.append(f"{name}{remark} {folder}")
        lines = "\n".join(self.toolchains)
        self.program(self.bin / "rustup", f"printf '%s\\n' '{lines}'")

    def pin(self, channel: str) -> None:
        (self.project / "rust-toolchain.toml").write_text(f'[toolchain]\nchannel = "{channel}"\n')


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_the_pinned_toolchain_is_used_where_its_library_is_really_there(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "rust", library=True)
    machine.pin("1.95.0")
    chosen = choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=True)
    assert chosen.to_json() == {
        "rustc": "1.95.0",
        "commit": "c0ffee",
        "toolchain": None,
        "pinned": "1.95.0",
        "pinned_by": "rust-toolchain.toml",
        "fallback": False,
        "fix": None,
    }
    assert (chosen.cargo, dict(chosen.environ)) == ("cargo", {})


def test_new_07_a_compiler_without_the_library_is_not_enough(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.94.1", machine.root / "rust", library=False)
    with pytest.raises(Unavailable) as caught:
        choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=False)
    assert caught.value.code == "wasm-target-missing"
    assert caught.value.message == (
        f"rustc 1.94.1 has no library for {TARGET}: {machine.bin / 'rustc'} looks for it below"
        f" {machine.root / 'rust'}, where rustup adds nothing"
    )
    assert "rustup.rs" in caught.value.hint


def test_the_newest_other_toolchain_with_the_library_is_taken_and_the_fix_is_said(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "toolchains" / "1.95.0", library=False)
    machine.pin("1.95.0")
    machine.toolchain("nightly", "1.99.0-nightly", library=False)
    machine.toolchain("old", "1.90.0", library=True)
    machine.toolchain("beta", "1.97.0-beta.2", library=True)
    machine.toolchain("stable", "1.97.0", library=True)
    chosen = choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=False)
    assert dict(chosen.environ) == {"RUSTUP_TOOLCHAIN": "stable"}
    assert chosen.to_json() == {
        "rustc": "1.97.0",
        "commit": "c0ffee",
        "toolchain": "stable",
        "pinned": "1.95.0",
        "pinned_by": "rust-toolchain.toml",
        "fallback": True,
        "fix": f"rustup target add {TARGET} --toolchain 1.95.0",
    }


def test_a_pinned_toolchain_that_is_not_installed_has_another_fix(machine: Machine) -> None:
    machine.program(machine.bin / "rustc", "echo \"error: toolchain '1.95.0' is not installed\" >&2; exit 1")
    machine.pin("1.95.0")
    machine.toolchain("stable", "1.97.0", library=True)
    chosen = choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=False)
    assert chosen.problem == (
        "the toolchain `1.95.0` (rust-toolchain.toml) cannot be used: toolchain '1.95.0' is not installed"
    )
    assert chosen.fix == f"rustup toolchain install 1.95.0 --target {TARGET}"


def test_locked_allows_no_other_toolchain(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "toolchains" / "1.95.0", library=False)
    machine.pin("1.95.0")
    machine.toolchain("stable", "1.97.0", library=True)
    with pytest.raises(BuildFailed) as caught:
        choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=True)
    assert caught.value.code == "toolchain-not-pinned"
    assert f"rustup target add {TARGET} --toolchain 1.95.0" in caught.value.hint


def test_bld_10_a_distribution_compiler_does_not_read_the_pin(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.75.0", machine.root / "rust", library=True)
    machine.pin("1.95.0")
    chosen = choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=False)
    assert chosen.is_fallback
    assert chosen.problem == (
        f"rust-toolchain.toml pins 1.95.0, {machine.bin / 'rustc'} is 1.75.0: the pin works only under rustup"
    )
    with pytest.raises(BuildFailed):
        choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=True)


@pytest.mark.parametrize(
    "channel", ["stable", "nightly-2026-01-01", "1.95", "1.95.0-x86_64-unknown-linux-gnu"]
)
def test_a_pin_that_the_compiler_may_well_be_is_no_problem(machine: Machine, channel: str) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "rust", library=True)
    machine.pin(channel)
    assert not choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=True).is_fallback


def test_bld_07_another_compiler_on_path_serves_with_its_own_cargo(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "rust", library=False)
    other = machine.root / "usr-bin"
    machine.rustc(other / "rustc", "1.94.0", machine.root / "debian", library=True)
    machine.program(other / "cargo", "exit 0")
    environ = {"PATH": f"{machine.bin}:{other}"}
    chosen = choose_toolchain(machine.project, environ, rustc="rustc", locked=False)
    assert (chosen.cargo, dict(chosen.environ)) == (str(other / "cargo"), {"RUSTC": str(other / "rustc")})
    assert chosen.problem is not None and str(machine.bin / "rustc") in chosen.problem


def test_bld_07_rustups_target_does_not_apply_to_another_compiler(machine: Machine) -> None:
    debian, rustups = machine.root / "usr-bin", machine.bin
    machine.rustc(debian / "rustc", "1.94.0", machine.root / "usr", library=False)
    machine.program(rustups / "rustup", "exit 0")
    environ = {"PATH": f"{debian}:{rustups}"}
    with pytest.raises(Unavailable) as caught:
        choose_toolchain(machine.project, environ, rustc="rustc", locked=False)
    assert caught.value.message == (
        f"rustc 1.94.0 has no library for {TARGET}: {debian / 'rustc'} looks for it below"
        f" {machine.root / 'usr'}, where rustup adds nothing"
    )
    assert caught.value.hint == f'run `export PATH="{rustups}:$PATH"`'


def test_bld_08_no_compiler_at_all(machine: Machine) -> None:
    with pytest.raises(Unavailable) as caught:
        choose_toolchain(machine.project, machine.environ, rustc="rustc", locked=False)
    assert (caught.value.code, caught.value.message) == (
        "rust-missing",
        "`rustc` was not found on PATH, and a capsule is compiled by it",
    )


def test_the_pin_is_the_variable_then_the_nearest_file(tmp_path: Path) -> None:
    project = tmp_path / "a" / "b"
    project.mkdir(parents=True)
    assert find_pin(project, {}) is None
    (tmp_path / "a" / "rust-toolchain.toml").write_text('[toolchain]\nchannel = "1.90.0"')
    assert find_pin(project, {}) == Pin(channel="1.90.0", source="rust-toolchain.toml")
    (project / "rust-toolchain").write_text("nightly\n")
    assert find_pin(project, {}) == Pin(channel="nightly", source="rust-toolchain")
    assert find_pin(project, {"RUSTUP_TOOLCHAIN": "mine"}) == Pin(channel="mine", source="RUSTUP_TOOLCHAIN")


def test_bld_09_the_preflight_advises_a_target_and_never_a_component(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "toolchains" / "x", library=False)
    machine.program(machine.bin / "rustup", "exit 0")
    found = find_target_problem(machine.project, machine.environ, rustc="rustc")
    assert found is not None
    assert found[1] == f"rustup target add {TARGET}"
    machine.pin("1.95.0")
    found = find_target_problem(machine.project, machine.environ, rustc="rustc")
    assert found is not None and found[1] == f"rustup target add {TARGET} --toolchain 1.95.0"


def test_the_preflight_says_nothing_where_all_is_there(machine: Machine) -> None:
    machine.rustc(machine.bin / "rustc", "1.95.0", machine.root / "rust", library=True)
    assert find_target_problem(machine.project, machine.environ, rustc="rustc") is None
