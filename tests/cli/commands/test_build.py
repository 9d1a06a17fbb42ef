"""`aos capsule build`: arguments, failures before a compiler runs, and all of a build that needs none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive
from aos_runtime.capsule.manifest import parse_manifest
from aos_runtime.home import Home
from tests.cli.conftest import RunAos

SERVERS = {"name": "times", "mcpServers": {"clock": {"command": "python3", "args": ["./clock.py"]}}}
MANIFEST = """\
[package]
name = "notes"
version = "1.2.0"
[capabilities]
host_process = ["python3", "node"]
[[mcp_server]]
id = "notes"
command = "python3"
args = ["-m", "notes", ".env", "missing.py", "Capsule.toml", "../secret", "lib", "assets", "."]
[[mcp_server]]
id = "other"
command = "node"
args = ["bin/serve.js"]
[[context_file]]
name = "workspace-context"
file = "AGENTS.md"
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as the current one, and a machine without Rust."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("RUSTC", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("path", [".", "gone"])
def test_a_folder_without_a_project_is_named(run_aos: RunAos, project: Path, path: str) -> None:
    ended = run_aos("capsule", "build", path, "--json")
    assert (ended.status, ended.error["code"]) == (1, "cargo-project-missing")
    assert ended.error["message"] == (
        f"there is no Cargo.toml, Capsule.toml or mcp.json in {(project / path).resolve()}"
    )


def test_bld_08_without_rust_the_way_to_it_is_said(run_aos: RunAos, project: Path) -> None:
    (project / "Cargo.toml").touch()
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.out) == (1, "")
    assert ended.error["code"] == "rust-missing"
    assert "https://rustup.rs" in ended.error["hint"]


def test_an_unknown_compression_is_a_usage_error(run_aos: RunAos, project: Path) -> None:
    ended = run_aos("capsule", "build", "--compression", "brotli")
    assert (ended.status, "'brotli' is not one of gzip, zstd" in ended.err) == (2, True)


def test_a_home_of_another_system_is_refused_before_anything_is_written(
    run_aos: RunAos, project: Path, home: Home
) -> None:
    home.etc.mkdir(parents=True)
    home.layout_file.write_text("2\n")
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "home-foreign")
    assert [path.name for path in home.state.iterdir()] == ["etc"]
    assert list(project.iterdir()) == []


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def contents(path: Path) -> dict[str, bytes]:
    with path.open("rb") as file:
        return {member.path: member.data for member in iter_members(file, scan_archive(file))}


def test_a_manifest_without_a_component_is_packed_as_it_is(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST, AGENTS_md="Be brief.", bin__serve_js="//", lib__x_py="")
    write(project, _env="KEY=secret", assets__page_html="<p>", src__main_py="", secret="no")
    ended = run_aos("capsule", "build", "--json")
    record = ended.json
    assert (ended.status, [one["message"] for one in record["warnings"]]) == (
        0,
        [
            "server `notes`: its argument .env is not packed: it is hidden",
            "server `notes`: its argument lib is not packed: it is a folder",
        ],
    )
    assert {key: record[key] for key in ("name", "version", "mcp_servers", "tools", "toolchain", "sdk")} == {
        "name": "notes",
        "version": "1.2.0",
        "mcp_servers": ["notes", "other"],
        "tools": [],
        "toolchain": None,
        "sdk": None,
    }
    assert (record["profile"], record["digests"]["component"], record["imports"]) == (None, None, [])
    packed = contents(project / "dist" / "notes.capsule")
    assert packed["Capsule.toml"].decode() == MANIFEST
    assert sorted(packed) == [
        "AGENTS.md",
        "Capsule.provenance.json",
        "Capsule.toml",
        "assets/page.html",
        "bin/serve.js",
    ]


def test_two_builds_give_the_same_bytes(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST, AGENTS_md="x")
    first, second = (run_aos("capsule", "build", "-o", name, "--json").json for name in ("a", "b"))
    assert first["digests"] == second["digests"]
    assert (project / "a" / "notes.capsule").read_bytes() == (project / "b" / "notes.capsule").read_bytes()


def test_a_capsule_of_context_files_only_is_built_and_said_to_start_nothing(
    run_aos: RunAos, project: Path
) -> None:
    rows = '[[context_file]]\nname = "a"\nfile = "A.md"\n'
    write(project, Capsule_toml=f'[package]\nname = "words"\nversion = "1.0.0"\n{rows}', A_md="x")
    ended = run_aos("capsule", "build", "--strict")
    assert (ended.status, ended.out) == (0, f"{project}/dist/words.capsule\n")
    assert "the capsule starts nothing: it has no component and no stdio server" in ended.err


def test_a_file_that_the_manifest_names_and_that_is_missing_fails(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST)
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "named-file-missing")
    assert not (project / "dist").exists()


def test_a_component_needs_the_project_that_makes_it(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST + '[[component]]\nid = "x"\nfile = "x.wasm"\n')
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "cargo-project-missing")
    assert ended.error["message"].startswith("Capsule.toml has a [[component]], and there is no Cargo.toml")


def test_man_11_a_command_that_host_process_does_not_list_fails(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST.replace('"node"', '"nod"', 1), AGENTS_md="x")
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "manifest-invalid")
    assert "`capabilities.host_process` does not list" in ended.error["message"]


def test_strict_refuses_handlers_that_nothing_has(run_aos: RunAos, project: Path) -> None:
    row = '[subscribe]\n"a.v1.b" = { wit = "opaque", handler = "on_b" }\n'
    write(project, Capsule_toml=MANIFEST + row, AGENTS_md="x")
    ended = run_aos("capsule", "build", "--strict", "--json")
    assert (ended.status, ended.error["code"]) == (1, "strict-warnings")
    assert run_aos("capsule", "build").status == 0


def test_the_interfaces_of_the_author_are_packed(run_aos: RunAos, project: Path) -> None:
    write(project, Capsule_toml=MANIFEST, AGENTS_md="x", wit__a_wit="package a:b;\ninterface c {}\n")
    assert run_aos("capsule", "build", "--strict").status == 0
    assert "wit/a.wit" in contents(project / "dist" / "notes.capsule")
    write(project, wit__a_wit="package ;")
    assert "wit/ does not resolve as one package" in run_aos("capsule", "build").err


def test_a_folder_with_an_mcp_json(run_aos: RunAos, project: Path) -> None:
    write(project, mcp_json=json.dumps(SERVERS), clock_py="print()", wit__a_wit="package ;")
    ended = run_aos("capsule", "build", "--debug")
    assert (ended.status, ended.out) == (0, f"{project}/dist/times.capsule\n")
    assert ended.err == (
        "note: --debug changes nothing: this project has nothing to compile\n"
        "✓ times 1.0.0, MCP servers: clock\n"
    )
    packed = contents(project / "dist" / "times.capsule")
    assert sorted(packed) == ["Capsule.provenance.json", "Capsule.toml", "clock.py"]
    assert [row.args for row in parse_manifest(packed["Capsule.toml"]).mcp_servers] == [("./clock.py",)]


def test_a_gemini_extension(run_aos: RunAos, project: Path) -> None:
    value = {"name": "ext", "version": "0.3.0", "contextFileName": "GEMINI.md"}
    write(project, GEMINI_md="x", commands__gcs__sync_toml="", commands__do_toml="", mcp_json="{")
    (project / "gemini-extension.json").write_text(json.dumps(value))
    ended = run_aos("capsule", "build", "--compression", "zstd", "--json")
    assert (ended.status, ended.json["version"], ended.json["compression"]) == (0, "0.3.0", "zstd")
    assert sorted(ended.json["files"]) == [
        "Capsule.provenance.json",
        "Capsule.toml",
        "GEMINI.md",
        "commands/do.toml",
        "commands/gcs/sync.toml",
    ]


def test_a_list_of_servers_is_named_from_anywhere_and_its_folder_is_the_project(
    run_aos: RunAos, project: Path
) -> None:
    value = SERVERS | {"mcpServers": {"far": {"url": "https://x.example"}, **SERVERS["mcpServers"]}}
    write(project, other__list_json=json.dumps(value), other__clock_py="", other__Cargo_toml="", clock_py="1")
    ended = run_aos("capsule", "build", "--from-mcp-json", "other/list.json", "--json")
    assert (ended.status, ended.json["path"]) == (0, str(project / "dist" / "times.capsule"))
    assert contents(project / "dist" / "times.capsule")["clock.py"] == b""
    assert ended.json["warnings"][0]["message"] == (
        "server `far` has a URL, and only stdio servers are started: its row has no effect"
    )
    strict = run_aos("capsule", "build", "--from-mcp-json", "other/list.json", "--strict", "--json")
    assert (strict.status, strict.error["code"]) == (1, "strict-warnings")


def test_a_refused_build_writes_nothing_over_the_last_one(run_aos: RunAos, project: Path) -> None:
    write(project, mcp_json=json.dumps(SERVERS), clock_py="")
    assert run_aos("capsule", "build").status == 0
    before = (project / "dist" / "times.capsule").read_bytes()
    write(project, mcp_json=json.dumps(SERVERS | {"mcpServers": {"clock": {"command": "x", "args": [1]}}}))
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "mcp-json-invalid")
    assert ended.error["message"] == "server `clock`: `args[0]` is a number, and must be text"
    assert ended.error["details"] == ["mcp.json: server `clock`: `args[0]` is a number, and must be text"]
    assert (project / "dist" / "times.capsule").read_bytes() == before
    assert [path.name for path in (project / "dist").iterdir()] == ["times.capsule"]


def test_nothing_is_packed_through_a_link(run_aos: RunAos, project: Path, tmp_path: Path) -> None:
    write(project, mcp_json=json.dumps(SERVERS))
    write(tmp_path, outside_py="secret")
    (project / "clock.py").symlink_to(tmp_path / "outside.py")
    ended = run_aos("capsule", "build", "--json")
    assert (ended.status, ended.error["code"]) == (1, "symlink-refused")


def test_a_path_beside_a_list_of_servers_is_a_usage_error(run_aos: RunAos, project: Path) -> None:
    ended = run_aos("capsule", "build", "other", "--from-mcp-json", "mcp.json")
    assert (ended.status, "PATH cannot stand beside it" in ended.err) == (2, True)
