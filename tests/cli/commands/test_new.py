"""`aos capsule new`, with stand-ins for the Rust tools on PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.console import Console
from tests.cli.conftest import RunAos

TARGET = "wasm32-unknown-unknown"
FIX = f"rustup target add {TARGET} --toolchain 1.95.0"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Cargo, cc, rustup, and a rustc without the target's library; what rustup was asked is in `asked`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    sysroot = tmp_path / "toolchains" / "1.95.0"
    libraries = sysroot / "lib" / "rustlib" / TARGET / "lib"
    scripts = {
        "cargo": "exit 0",
        "cc": "exit 0",
        "rustc": f'case "$1" in -vV) echo "release: 1.95.0";; *) echo {sysroot}; echo {libraries};; esac',
        "rustup": f'echo "$@" >> {tmp_path}/asked; echo "error: no route" >&2; exit 1',
    }
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("RUSTUP_TOOLCHAIN", raising=False)
    monkeypatch.delenv("RUSTC", raising=False)
    monkeypatch.chdir(tmp_path)
    return folder


def add_library(machine: Path) -> None:
    libraries = machine.parent / "toolchains" / "1.95.0" / "lib" / "rustlib" / TARGET / "lib"
    libraries.mkdir(parents=True)
    for crate in ("std", "core"):
        (libraries / f"lib{crate}-0.rlib").touch()


def test_a_project_and_the_way_on(run_aos: RunAos, machine: Path) -> None:
    add_library(machine)
    ended = run_aos("capsule", "new", "demo")
    assert (ended.status, ended.out) == (0, "")
    assert ended.err == (
        f"✓ {machine.parent}/demo: 7 files from the template tool\n"
        "next:\n"
        "  cd demo\n"
        "  aos capsule build\n"
        "  aos capsule install ./dist/demo.capsule\n"
        "  aos tool call hello --arg name=Ada\n"
    )
    assert (machine.parent / "demo" / "src" / "lib.rs").is_file()


def test_the_document(run_aos: RunAos, machine: Path, tmp_path: Path) -> None:
    add_library(machine)
    ended = run_aos("capsule", "new", "demo", "--path", str(tmp_path / "deep"), "--json")
    assert ended.json == {
        "schema_version": 1,
        "name": "demo",
        "kind": "tool",
        "path": f"{tmp_path}/deep/demo",
        "files": [
            ".cargo/config.toml",
            "rust-toolchain.toml",
            "Cargo.toml",
            "Capsule.toml",
            "src/lib.rs",
            "README.md",
            ".gitignore",
        ],
        "warnings": [],
    }


def test_new_06_without_a_terminal_nothing_is_asked_or_installed(run_aos: RunAos, machine: Path) -> None:
    ended = run_aos("capsule", "new", "demo")
    assert ended.status == 0
    assert f"hint: run `{FIX}`\n" in ended.err
    assert not (machine.parent / "asked").exists()
    assert (machine.parent / "demo" / "Cargo.toml").is_file()


def test_new_06_on_a_terminal_it_is_asked_once(
    run_aos: RunAos, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions: list[tuple[str, bool]] = []

    def confirm(self: Console, question: str, default: bool) -> bool:
        questions.append((question, default))
        return True

    monkeypatch.setattr(Console, "interactive", property(lambda self: True))
    monkeypatch.setattr(Console, "confirm", confirm)
    assert run_aos("capsule", "new", "demo").status == 0
    assert questions == [(f"Run `{FIX}` now?", True)]
    assert (machine.parent / "asked").read_text() == f"target add {TARGET} --toolchain 1.95.0\n"


def test_new_06_a_failed_installation_is_a_warning_with_rustups_own_words(
    run_aos: RunAos, machine: Path
) -> None:
    ended = run_aos("capsule", "new", "demo", "--install-target")
    assert ended.status == 0
    assert "error: no route\n" in ended.err
    assert f"warning: `{FIX}` failed; the project is written all the same\n" in ended.err
    assert f"hint: run `{FIX}`\n" in ended.err
    assert (machine.parent / "demo" / "Cargo.toml").is_file()


def test_an_installation_that_works_leaves_no_warning(run_aos: RunAos, machine: Path) -> None:
    (machine / "rustup").write_text("#!/bin/sh\nexit 0\n")
    ended = run_aos("capsule", "new", "demo", "--install-target", "--json")
    assert ended.json["warnings"] == []


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("cargo", "cargo was not found on PATH"),
        ("rustc", "`rustc` was not found"),
        ("cc", "no C linker (cc)"),
    ],
)
def test_what_the_machine_lacks_is_a_warning(run_aos: RunAos, machine: Path, missing: str, said: str) -> None:
    add_library(machine)
    (machine / missing).unlink()
    ended = run_aos("capsule", "new", "demo")
    assert ended.status == 0
    assert f"warning: {said}" in ended.err


def test_a_folder_with_files_is_a_failure_and_stays(run_aos: RunAos, machine: Path, tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "notes").write_text("mine")
    ended = run_aos("capsule", "new", "demo", "--json")
    assert (ended.status, ended.error["code"]) == (1, "project-exists")
    assert [path.name for path in (tmp_path / "demo").iterdir()] == ["notes"]


def test_force_lists_what_was_changed(run_aos: RunAos, machine: Path, tmp_path: Path) -> None:
    add_library(machine)
    run_aos("capsule", "new", "demo")
    (tmp_path / "demo" / "src" / "lib.rs").write_text("// mine")
    ended = run_aos("capsule", "new", "demo", "--force")
    assert (ended.status, "src/lib.rs" in ended.err) == (1, True)
    (tmp_path / "demo" / "src" / "lib.rs").unlink()
    assert run_aos("capsule", "new", "demo", "--force").status == 0


@pytest.mark.parametrize(
    ("arguments", "code"), [(("Demo",), "project-name"), (("demo", "--kind", "gadget"), "template-unknown")]
)
def test_a_wrong_name_or_kind_writes_nothing(
    run_aos: RunAos, machine: Path, tmp_path: Path, arguments: tuple[str, ...], code: str
) -> None:
    before = sorted(tmp_path.iterdir())
    ended = run_aos("capsule", "new", *arguments, "--json")
    assert (ended.status, ended.error["code"]) == (1, code)
    assert sorted(tmp_path.iterdir()) == before
