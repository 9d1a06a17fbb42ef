"""`aos capsule build` on the real thing: cargo, the SDK, and projects that have gone wrong in known ways.

All projects share one target folder, so that the SDK is compiled once; what one test needs of the next is
nothing.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import textwrap
import time
import uuid
from pathlib import Path

import pytest

from aos_runtime.capsule.archive import iter_members, scan_archive
from aos_runtime.host import Instance
from tests.support.capsule_conformance import call_tool, loaded
from tests.support.guests import Recorder
from tests.support.installation import ROOT, Aos, Ended, is_alive, wait_until
from tests.support.projects import shared_target

pytestmark = pytest.mark.journey

TARGET = "wasm32-unknown-unknown"
BUILD_TIMEOUT_S = 600.0
UUID = 'uuid = { version = "1", features = ["v4"] }\n'


class Author:
    """Somebody with a home, a folder, and `aos`."""

    def __init__(self, root: Path, **extra: str) -> None:
        target = {"CARGO_TARGET_DIR": str(shared_target())}
        self.aos = Aos(root=root, extra={**target, **extra})
        self.folder = self.aos.folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def new(self, name: str, parent: Path | None = None) -> Path:
        where = parent or self.folder
        self.aos.run("capsule", "new", name, "--path", str(where))
        return where / name

    def build(self, project: Path, *options: str, status: int = 0) -> Ended:
        """Build; compiling the SDK anew on a busy machine takes minutes."""
        command = ("capsule", "build", *options)
        process = self.aos.start(*command, folder=project)
        try:
            out, err = process.communicate(timeout=BUILD_TIMEOUT_S)
        finally:
            process.kill()
        ended = Ended(command=("aos", *command), status=process.returncode, out=out, err=err)
        assert ended.status == status, str(ended)
        return ended


@pytest.fixture
def author(tmp_path: Path) -> Author:
    return Author(tmp_path)


def members(archive: Path) -> dict[str, bytes]:
    file = io.BytesIO(archive.read_bytes())
    return {member.path: member.data for member in iter_members(file, scan_archive(file))}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def add(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def cargo(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "CARGO_TARGET_DIR": str(shared_target())}
    return subprocess.run(
        ["cargo", *arguments],
        cwd=project,
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_new_03_a_scaffold_builds_at_once_without_a_warning(author: Author) -> None:
    project = author.new("first")
    ended = author.build(project, "--strict", "--json")
    assert "warning" not in ended.err, str(ended)
    record = ended.json
    assert Path(record["path"]) == project / "dist" / "first.capsule"
    assert (record["schema_version"], record["name"], record["version"]) == (1, "first", "0.1.0")
    assert (record["tools"], record["warnings"], record["compression"]) == (["hello"], [], "gzip")
    assert record["size_bytes"] == (project / "dist" / "first.capsule").stat().st_size
    assert all(name.startswith("astrid:") for name in record["imports"])
    assert record["toolchain"]["fallback"] is False
    assert list(members(project / "dist" / "first.capsule")) == record["files"]
    assert record["files"] == [
        "Capsule.toml",
        "first.wasm",
        "wit/capsule.wit",
        "wit/deps/astrid-contracts/astrid-contracts.wit",
        "Capsule.provenance.json",
    ]
    for check in (("fmt", "--check"), ("clippy", "--quiet", "--", "-D", "warnings"), ("build", "--quiet")):
        done = cargo(project, *check)
        assert done.returncode == 0, done.stdout + done.stderr
    module = shared_target() / TARGET / "debug" / "first.wasm"
    assert module.read_bytes()[:8] == b"\0asm\x01\0\0\0", "cargo alone makes the module"


def test_new_03_the_commands_of_the_scaffolds_readme_work_as_they_stand(author: Author) -> None:
    project = author.new("readme")
    block = (project / "README.md").read_text().split("```sh\n")[1].split("```")[0]
    lines = [shlex.split(line) for line in block.splitlines()]
    assert [line[:2] for line in lines] == [
        ["aos", "capsule"],
        ["aos", "capsule"],
        ["aos", "tool"],
        ["aos", "logs"],
    ]
    try:
        answers = [author.aos.run(*line[1:], folder=project).out for line in lines]
    finally:
        author.aos.close()
    assert answers[2] == "Hello, Ada!\n"
    assert "greeting Ada" in answers[3]


def test_new_08_a_scaffold_without_its_pin_builds_with_what_is_there(author: Author) -> None:
    project = author.new("unpinned")
    (project / "rust-toolchain.toml").unlink()
    assert author.build(project, "--json").json["toolchain"]["pinned"] is None


@pytest.mark.parametrize("name", ["self", "std", "serde-json"])
def test_a_name_that_rust_keeps_for_itself_builds_all_the_same(author: Author, name: str) -> None:
    project = author.new(name)
    author.build(project, "--strict")
    stem = name.replace("-", "_") + "_capsule.wasm"
    assert stem in members(project / "dist" / f"{name}.capsule")


def test_bld_19_a_second_build_is_the_same_and_relinks_nothing(author: Author) -> None:
    project = author.new("again")
    author.build(project)
    archive = project / "dist" / "again.capsule"
    module = shared_target() / TARGET / "release" / "again.wasm"
    first, linked = archive.read_bytes(), module.stat().st_mtime_ns
    assert module.read_bytes()[:8] == b"\0asm\x01\0\0\0", "cargo's artifact was touched"
    ended = author.build(project, "--json")
    assert ended.json["fresh"] is True
    assert (archive.read_bytes(), module.stat().st_mtime_ns) == (first, linked)

    edit(project / "Capsule.toml", "A capsule that greets", "Greets, and well")
    assert author.build(project, "--json").json["fresh"] is True
    assert b"Greets, and well" in members(archive)["Capsule.toml"]


def test_bld_03_a_broken_source_leaves_the_archive_of_before(author: Author) -> None:
    project = author.new("broken")
    author.build(project)
    archive = project / "dist" / "broken.capsule"
    before = (archive.read_bytes(), archive.stat().st_mtime_ns)
    edit(project / "src" / "lib.rs", "Ok(format!", "Ok(fromat!")
    ended = author.build(project, status=1)
    assert "cannot find macro `fromat`" in ended.err
    assert "error: cargo could not build broken" in ended.err
    assert ended.out == ""
    assert (archive.read_bytes(), archive.stat().st_mtime_ns) == before
    assert [path.name for path in archive.parent.iterdir()] == ["broken.capsule"]


def test_bld_22_a_source_with_an_older_time_is_built_again(author: Author) -> None:
    project = author.new("older")
    author.build(project)
    source = project / "src" / "lib.rs"
    edit(source, '"Hello, {}!"', '"Good evening, {}!"')
    os.utime(source, (1_577_836_800, 1_577_836_800))
    ended = author.build(project)
    assert f"cargo called its artifact fresh, but {source} differs: building it again" in ended.err
    assert b"Good evening, " in members(project / "dist" / "older.capsule")["older.wasm"]
    assert "fresh, but" not in author.build(project).err


def test_bld_22_two_projects_of_one_name_in_one_target_folder(author: Author) -> None:
    one, two = author.new("twins", author.folder / "a"), author.new("twins", author.folder / "b")
    edit(two / "src" / "lib.rs", '"Hello, {}!"', '"Ahoy, {}!"')
    for path in (one, two):
        os.utime(path / "src" / "lib.rs", (1_577_836_800, 1_577_836_800))
    for project, text in ((one, b"Hello, "), (two, b"Ahoy, "), (one, b"Hello, ")):
        author.build(project)
        assert text in members(project / "dist" / "twins.capsule")["twins.wasm"]


def test_bld_04_the_getrandom_flag_is_added_where_it_is_missing(author: Author) -> None:
    project = author.new("entropy")
    shutil.rmtree(project / ".cargo")
    edit(project / "Cargo.toml", 'serde_json = "1.0"\n', 'serde_json = "1.0"\n' + UUID)
    edit(project / "src" / "lib.rs", '"Hello, {}!", args.name', '"{} {}", uuid::Uuid::new_v4(), args.name')
    ended = author.build(project)
    assert ended.err.count('the flag --cfg=getrandom_backend="custom" was added') == 1
    component = project / "entropy.wasm"
    component.write_bytes(members(project / "dist" / "entropy.capsule")["entropy.wasm"])
    with loaded(component) as code:
        recorder = Recorder()
        instance = Instance(code, recorder.context())
        said = [call_tool(instance, recorder, "hello", {"name": "Ada"})[0] for _ in range(2)]
    identities = {uuid.UUID(content.removesuffix(" Ada")) for content in said}
    assert len(identities) == 2, "what the host gives is random"


def test_bld_01_bld_17_a_workspace_member_with_a_library_name_of_its_own(author: Author) -> None:
    root = author.folder / "workspace"
    project = author.new("member", root / "caps")
    text = (project / "Cargo.toml").read_text()
    profile = text.index("[profile.release]")  # of the root it is the one that counts
    (root / "Cargo.toml").write_text(
        f'[workspace]\nresolver = "3"\nmembers = ["caps/member"]\n\n{text[profile:]}'
    )
    (project / "Cargo.toml").write_text(text[:profile])
    edit(
        project / "Cargo.toml",
        'name = "member"\ncrate-type = ["cdylib"]',
        'name = "core_logic"\ncrate-type = ["cdylib", "rlib"]',
    )
    (project / "src" / "main.rs").write_text(
        'fn main() { compile_error!("a program is not what is built"); }\n'
    )
    ended = author.build(project)
    assert "file was 'member.wasm', and is 'core_logic.wasm' as cargo made it" in ended.err
    found = members(project / "dist" / "member.capsule")
    assert "core_logic.wasm" in found
    assert b'file = "core_logic.wasm"' in found["Capsule.toml"]


def test_bld_02_a_stale_module_in_the_project_is_never_packed(author: Author, tmp_path: Path) -> None:
    project = author.new("stale")
    local = project / "target" / TARGET / "release"
    local.mkdir(parents=True)
    (local / "stale.wasm").write_bytes(b"\0asm stale")
    author.build(project)
    assert members(project / "dist" / "stale.capsule")["stale.wasm"][:8] == b"\0asm\x0d\0\x01\0"


def test_bld_13_a_foreign_import_is_named_with_its_module(author: Author) -> None:
    project = author.new("foreign")
    edit(project / "src" / "lib.rs", "#![deny(unsafe_code)]\n", "")
    edit(
        project / "src" / "lib.rs", "        log::info", "        unsafe { host_thing() };\n        log::info"
    )
    add(project / "src" / "lib.rs", 'unsafe extern "C" {\n    fn host_thing();\n}\n')
    ended = author.build(project, status=1)
    assert (
        "error: the capsule imports env::host_thing, and only astrid:* interfaces may be imported"
        in ended.err
    )
    assert not (project / "dist").exists()


def test_arc_11_assets_wit_and_what_the_manifest_names_are_packed(author: Author) -> None:
    project = author.new("full")
    files = {
        "assets/pictures/a.svg": "<svg/>",
        "skills/greet/SKILL.md": "# greet",
        "commands/deploy.toml": "x = 1",
        "wit/full.wit": "package full:api@1.0.0;\ninterface api { use acme:base/types@1.0.0.{thing}; }\n",
        "wit/deps/acme/acme.wit": "package acme:base@1.0.0;\ninterface types { record thing { a: u32 } }\n",
    }
    for name, text in files.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    add(project / "Capsule.toml", '\n[[command]]\nname = "/deploy"\nfile = "commands/deploy.toml"\n')
    author.build(project, "--strict", "--compression", "zstd")
    archive = project / "dist" / "full.capsule"
    found = members(archive)
    assert {name: found[name].decode() for name in files} == files
    assert archive.read_bytes()[:4] == b"\x28\xb5\x2f\xfd"

    (project / "commands" / "deploy.toml").unlink()
    ended = author.build(project, status=1)
    assert "Capsule.toml names what is not there: commands/deploy.toml" in ended.err


def test_arc_14_a_link_is_refused_before_anything_is_compiled(author: Author) -> None:
    project = author.new("linked")
    (project / "assets").mkdir()
    (project / "assets" / "secret").symlink_to(Path("/etc/hostname"))
    ended = author.build(project, status=1)
    assert "assets/secret is a symbolic link" in ended.err
    assert "Compiling linked" not in ended.err


def test_man_03_typos_are_warnings_and_errors_under_strict(author: Author) -> None:
    project = author.new("typo")
    edit(project / "Capsule.toml", "[capabilities]", "[capabilites]")
    edit(project / "Capsule.toml", "types/tool-call-result", "types/tool-cal-result")
    ended = author.build(project, "--strict", "--json", status=1)
    assert '"code": "strict-warnings"' in ended.err
    assert "Compiling typo" not in ended.err
    ended = author.build(project, "--json")
    found = [(one["file"], one["line"], one["hint"]) for one in ended.json["warnings"]]
    assert found[0] == ("Capsule.toml", 13, "did you mean `capabilities`?")
    assert found[1][:2] == ("Capsule.toml", 19) and "tool-call-result" in found[1][2]


def test_a_library_without_cdylib_is_told_the_line(author: Author) -> None:
    project = author.new("plain")
    edit(project / "Cargo.toml", 'crate-type = ["cdylib"]', 'crate-type = ["rlib"]')
    ended = author.build(project, status=1)
    assert 'hint: write crate-type = ["cdylib"] below [lib] in Cargo.toml' in ended.err


def test_bld_11_offline_without_the_crates_ends_in_seconds(tmp_path: Path) -> None:
    author = Author(tmp_path, CARGO_HOME=str(tmp_path / "empty"), CARGO_TARGET_DIR=str(tmp_path / "target"))
    project = author.new("away")
    began = time.monotonic()
    ended = author.build(project, "--offline", "--json", status=1)
    assert '"code": "crates-offline"' in ended.err, str(ended)
    assert "astrid-sdk" in ended.err
    assert time.monotonic() - began < 20


def slow_project(folder: Path) -> Path:
    """A project whose build script sleeps and says which process it is."""
    project = folder / "slow"
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(
        '[package]\nname = "slow"\nversion = "0.1.0"\nedition = "2021"\n[lib]\ncrate-type = ["cdylib"]\n'
    )
    (project / "Capsule.toml").write_text('[package]\nname = "slow"\nversion = "0.1.0"\n')
    pid = project / "pid"
    (project / "build.rs").write_text(
        textwrap.dedent(
            f"""
            fn main() {{
                std::fs::write({str(pid)!r}, std::process::id().to_string()).unwrap();
                std::thread::sleep(std::time::Duration::from_secs(300));
            }}
            """
        ).replace("'", '"')
    )
    return project


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_no_process_and_no_file(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    author = Author(tmp_path, CARGO_TARGET_DIR=str(tmp_path / "target"))
    project = slow_project(author.folder)
    process = author.aos.start("capsule", "build", folder=project)
    pid_file = project / "pid"
    try:
        wait_until(lambda: pid_file.exists() and pid_file.read_text() != "", "the build script runs")
        process.send_signal(number)
        assert process.wait(20) == status
    finally:
        process.kill()
        process.communicate()
    wait_until(lambda: not is_alive(int(pid_file.read_text())), "the build script is gone", timeout_s=5)
    assert not (project / "dist").exists()


@pytest.mark.slow
def test_two_users_builds_of_one_source_are_equal(tmp_path: Path) -> None:
    """Two homes, two cargo homes, two folders, two target folders: one digest (ARC-09, must-show 4)."""
    cargo_home = Path(os.environ["CARGO_HOME"])
    ada = Author(tmp_path / "ada")
    project = ada.new("shared")
    edit(
        project / "src" / "lib.rs",
        "Ok(format!",
        'assert!(!args.name.is_empty(), "no name");\n        Ok(format!',
    )
    first = ada.build(project, "--json").json

    grace_cargo = tmp_path / "grace" / "other" / "cargo"
    grace_cargo.mkdir(parents=True)
    (grace_cargo / "registry").symlink_to(cargo_home / "registry")
    grace = Author(
        tmp_path / "grace",
        HOME=str(tmp_path / "grace" / "user"),
        CARGO_HOME=str(grace_cargo),
        CARGO_TARGET_DIR=str(tmp_path / "grace" / "elsewhere"),
    )
    copy = tmp_path / "grace" / "some" / "deeper" / "place" / "shared"
    shutil.copytree(project, copy, ignore=shutil.ignore_patterns("dist", "target"))
    second = grace.build(copy, "--offline", "--locked", "--json").json

    assert second["digests"]["component"] == first["digests"]["component"]
    assert second["digests"]["content"] == first["digests"]["content"]
    assert second["signer"] != first["signer"]
    component = members(Path(second["path"]))["shared.wasm"]
    for trace in (tmp_path, cargo_home, ROOT):
        assert str(trace).encode() not in component


def test_the_bundle_is_built_unsigned_with_its_catalogue(tmp_path: Path) -> None:
    from aos_cli.build.bundle import build_bundle
    from aos_runtime.store.bundled import read_catalogue

    environ = {**os.environ, "CARGO_TARGET_DIR": str(shared_target())}
    (tmp_path / "gone.capsule").touch()
    build_bundle(ROOT, tmp_path, environ=environ)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    names = sorted(path.parent.name for path in (ROOT / "capsules").glob("*/Capsule.toml"))
    assert sorted(first) == sorted(["bundled.json", *(f"{name}.capsule" for name in names)])
    rows = read_catalogue(tmp_path)
    assert [row.name for row in rows] == names
    asks = {row.name: row.asks for row in rows}
    assert (asks["router"], asks["fs"]) == ((), ("fs_read", "fs_write"))
    for row in rows:
        inventory = scan_archive(io.BytesIO(row.path.read_bytes()))
        assert inventory.provenance is None
        assert inventory.content_digest == row.content_digest
    build_bundle(ROOT, tmp_path, environ=environ)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == first
