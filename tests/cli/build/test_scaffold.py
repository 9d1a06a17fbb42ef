"""Rendering a template and writing it whole or not at all."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from aos_cli.build.scaffold import (
    Rendered,
    Template,
    TemplateFile,
    check_project_name,
    list_kinds,
    load_template,
    render,
    write_project,
)
from aos_runtime.errors import Conflict, Corrupt, InvalidInput, NotFound
from aos_runtime.names import CapsuleName

PATHS = (
    ".cargo/config.toml",
    "rust-toolchain.toml",
    "Cargo.toml",
    "Capsule.toml",
    "src/lib.rs",
    "README.md",
    ".gitignore",
)


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()
    }


def rendered(name: str = "demo") -> tuple[Rendered, ...]:
    return render(load_template("tool"), CapsuleName(name))


@pytest.mark.parametrize("name", ["a", "a1", "my-capsule", "a-1-b", "self", "x" * 128])
def test_names_that_projects_may_have(name: str) -> None:
    assert check_project_name(name) == name


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", "a name like `my-capsule` will do"),
        ("My_Capsule", "try `my-capsule`"),
        ("-a", "try `a`"),
        ("a-", "try `a`"),
        ("a--b", "try `a-b`"),
        ("9lives", "try `lives`"),
        ("../evil", "try `evil`"),
        ("café", "try `caf`"),
        ("a\n", "try `a`"),
        ("日本", "a name like `my-capsule` will do"),
    ],
)
def test_names_that_they_may_not_have_with_one_that_would_do(name: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_project_name(name)
    assert (caught.value.code, caught.value.hint) == ("project-name", hint)


def test_a_name_longer_than_a_capsule_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="invalid capsule name"):
        check_project_name("x" * 129)


def test_the_tool_template_has_the_files_of_the_guide() -> None:
    assert list_kinds() == ("tool",)
    assert tuple(file.path for file in rendered()) == PATHS


def test_no_placeholder_is_left_and_every_toml_parses() -> None:
    for file in rendered("my-capsule"):
        assert b"{{" not in file.data, file.path
        if file.path.endswith(".toml"):
            tomllib.loads(file.data.decode())


def test_the_manifest_of_the_scaffold_names_what_cargo_makes() -> None:
    files = {
        file.path: tomllib.loads(file.data.decode())
        for file in rendered("my-capsule")
        if ".toml" in file.path
    }
    assert files["Cargo.toml"]["lib"] == {"name": "my_capsule", "crate-type": ["cdylib"]}
    assert files["Capsule.toml"]["component"] == [
        {"id": "my-capsule", "file": "my_capsule.wasm", "type": "executable"}
    ]
    assert list(files["Capsule.toml"]["subscribe"]) == ["tool.v1.execute.hello", "tool.v1.request.describe"]
    assert list(files["Capsule.toml"]["publish"]) == [
        "tool.v1.execute.*.result",
        "tool.v1.response.describe.*",
    ]
    assert files["Capsule.toml"]["capabilities"] == {}


def test_the_files_of_cargo_say_what_the_guide_says() -> None:
    files = {file.path: file.data.decode() for file in rendered() if file.path.endswith((".toml", ".rs"))}
    assert tomllib.loads(files[".cargo/config.toml"]) == {
        "build": {"target": "wasm32-unknown-unknown"},
        "target": {"wasm32-unknown-unknown": {"rustflags": ['--cfg=getrandom_backend="custom"']}},
    }
    assert tomllib.loads(files["rust-toolchain.toml"])["toolchain"] == {
        "channel": "1.95.0",
        "targets": ["wasm32-unknown-unknown"],
        "components": ["rustfmt", "clippy"],
    }
    cargo = tomllib.loads(files["Cargo.toml"])
    assert (cargo["package"]["edition"], cargo["package"]["publish"]) == ("2024", False)
    assert set(cargo["dependencies"]) == {"astrid-sdk", "serde", "serde_json"}
    assert cargo["profile"]["release"] == {
        "opt-level": "z",
        "lto": True,
        "codegen-units": 1,
        "strip": True,
        "panic": "abort",
    }
    assert files["src/lib.rs"].startswith("#![deny(unsafe_code)]\n#![deny(clippy::all)]\n")


def test_new_04_the_floor_excludes_the_sdk_whose_tools_are_never_found() -> None:
    cargo = next(file for file in rendered() if file.path == "Cargo.toml")
    assert tomllib.loads(cargo.data.decode())["dependencies"]["astrid-sdk"]["version"] == "0.7.1"


@pytest.mark.parametrize("name", ["self", "std", "core", "async", "serde-json", "astrid-sdk", "test", "gen"])
def test_a_name_that_rust_keeps_for_itself_gets_another_crate_name(name: str) -> None:
    cargo = next(file for file in rendered(name) if file.path == "Cargo.toml")
    table = tomllib.loads(cargo.data.decode())
    assert table["package"]["name"] == name
    assert table["lib"]["name"] == name.replace("-", "_") + "_capsule"


def test_new_05_a_folder_of_the_same_name_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = rendered()
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "template.toml").write_text("schema = 99")
    monkeypatch.chdir(tmp_path)
    assert rendered() == elsewhere


def test_an_unknown_kind_names_the_ones_there_are() -> None:
    with pytest.raises(NotFound) as caught:
        load_template("gadget")
    assert (caught.value.code, caught.value.hint) == ("template-unknown", "use --kind tool")


@pytest.mark.parametrize(
    "text",
    ["", "schema = 2", "schema = 1\nsummary = 's'\nparameters = 1", "schema = 1\nsummary = 's'\nfile = [{}]"],
)
def test_a_damaged_template_is_said_to_be_damaged(tmp_path: Path, text: str) -> None:
    (tmp_path / "template.toml").write_text(text)
    with pytest.raises(Corrupt, match="is damaged"):
        load_template("odd", folder=tmp_path)


def test_a_new_project_appears_whole(tmp_path: Path) -> None:
    assert write_project(tmp_path / "deep" / "demo", rendered(), force=False) == PATHS
    assert tree(tmp_path / "deep" / "demo") == {file.path: file.data.decode() for file in rendered()}
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["demo"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    write_project(tmp_path / "demo", rendered(), force=False)
    assert set(tree(tmp_path / "demo")) == set(PATHS)


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Conflict) as caught:
        write_project(tmp_path, rendered(), force=False)
    assert caught.value.code == "project-exists"
    assert tree(tmp_path) == {"notes.txt": "mine"}


@pytest.mark.parametrize("kind", ["file", "link"])
def test_something_that_is_no_folder_is_refused_also_with_force(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "demo"
    if kind == "file":
        target.write_text("mine")
    else:
        target.symlink_to(tmp_path)
    with pytest.raises(Conflict, match="is no folder"):
        write_project(target, rendered(), force=True)


def test_force_writes_what_is_absent_or_unchanged_and_keeps_the_rest(tmp_path: Path) -> None:
    write_project(tmp_path / "demo", rendered(), force=False)
    (tmp_path / "demo" / "README.md").unlink()
    (tmp_path / "demo" / "src" / "more.rs").write_text("mine")
    assert write_project(tmp_path / "demo", rendered(), force=True) == PATHS
    expected = {file.path: file.data.decode() for file in rendered()}
    assert tree(tmp_path / "demo") == {**expected, "src/more.rs": "mine"}


def test_force_lists_what_the_author_changed_and_writes_nothing(tmp_path: Path) -> None:
    demo = tmp_path / "demo"
    write_project(demo, rendered(), force=False)
    (demo / "README.md").unlink()
    (demo / "Cargo.toml").write_text("# mine")
    (demo / "src" / "lib.rs").write_text("// mine")
    before = tree(demo)
    with pytest.raises(Conflict) as caught:
        write_project(demo, rendered(), force=True)
    assert caught.value.code == "project-changed"
    assert caught.value.context["changed"] == ["Cargo.toml", "src/lib.rs"]
    assert tree(demo) == before


def test_force_does_not_write_through_a_link(tmp_path: Path) -> None:
    demo, outside = tmp_path / "demo", tmp_path / "outside"
    outside.mkdir()
    demo.mkdir()
    (demo / "src").symlink_to(outside)
    (demo / "other").write_text("mine")
    with pytest.raises(Conflict) as caught:
        write_project(demo, rendered(), force=True)
    assert caught.value.context["changed"] == ["src/lib.rs"]
    assert list(outside.iterdir()) == []


def test_force_takes_a_file_of_an_earlier_template_for_unchanged(tmp_path: Path) -> None:
    file = TemplateFile(path="a.txt", text="new {{ name }}", previous=("old {{ name }}",))
    template = Template(kind="t", summary="", parameters={"name": "capsule-name"}, files=(file,))
    (tmp_path / "a.txt").write_text("old demo")
    write_project(tmp_path, render(template, CapsuleName("demo")), force=True)
    assert tree(tmp_path) == {"a.txt": "new demo"}


def test_a_failed_new_project_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: Path) -> Path:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(Exception, match="No space left"):
        write_project(tmp_path / "deep" / "demo", rendered(), force=False)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_force_undoes_what_it_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    demo = tmp_path / "demo"
    write_project(demo, rendered(), force=False)
    (demo / "rust-toolchain.toml").unlink()
    before = tree(demo)
    real, calls = Path.replace, []

    def fail_later(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) == 4:
            raise OSError(28, os.strerror(28))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", fail_later)
    with pytest.raises(Exception, match="No space left"):
        write_project(demo, rendered(), force=True)
    assert tree(demo) == before
