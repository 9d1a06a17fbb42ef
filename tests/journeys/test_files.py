"""The first-party file tools through a real daemon: one job each, in the folder of whoever calls."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from tests.support.installation import Aos
from tests.support.projects import build_project

pytestmark = pytest.mark.journey


def workspace(aos: Aos, name: str) -> Path:
    folder = aos.root / name
    (folder / ".git").mkdir(parents=True)
    return folder


def call(aos: Aos, folder: Path, tool: str, **arguments: str) -> str:
    words = [word for key, value in arguments.items() for word in ("--arg", f"{key}={value}")]
    return aos.run("tool", "call", tool, *words, folder=folder).out.removesuffix("\n")


def fail(aos: Aos, folder: Path, tool: str, **arguments: str) -> str:
    words = [word for key, value in arguments.items() for word in ("--arg", f"{key}={value}")]
    ended = aos.run("tool", "call", tool, *words, folder=folder, status=1)
    return next(line for line in ended.err.splitlines() if line.startswith("error: "))


def test_init_brings_the_file_tools_and_each_does_its_job(aos: Aos) -> None:
    told = aos.run("init", "-y", "--json").json
    assert "fs" in [one["name"] for one in told["installed"]]
    assert aos.run("init", "--json").json["installed"] == []
    folder = workspace(aos, "project")
    aos.run("start", folder=folder)
    shown = {row["name"]: row for row in aos.run("tool", "list", "--json").json}
    mutable = {name for name, row in shown.items() if row["capsule"] == "fs" and row["mutable"]}
    assert mutable == {"write_file", "replace_in_file", "create_directory", "delete_file", "move_file"}
    assert {name for name, row in shown.items() if row["capsule"] == "fs"} - mutable == {
        *("read_file", "list_directory", "grep_search")
    }

    assert call(aos, folder, "create_directory", dir_path="src/deep") == "src/deep is there."
    assert call(aos, folder, "write_file", file_path="src/a.txt", content="one\ntwo\nthree\n") == (
        "Wrote 14 bytes to src/a.txt."
    )
    assert (folder / "src/a.txt").read_text() == "one\ntwo\nthree\n"
    assert (folder / "src/a.txt").stat().st_mode & 0o777 == 0o666 & ~current_umask()
    assert call(aos, folder, "read_file", file_path="src/a.txt", start_line="2", end_line="2") == "two"
    assert "Replaced" in call(
        aos, folder, "replace_in_file", file_path="src/a.txt", old_string="two", new_string="2"
    )
    assert call(aos, folder, "grep_search", pattern="2") == "src/a.txt:2:2"
    assert call(aos, folder, "move_file", source_path="src/a.txt", destination_path="src/deep/b.txt") == (
        "Moved src/a.txt to src/deep/b.txt."
    )
    assert call(aos, folder, "list_directory", dir_path="src") == "deep/"
    assert call(aos, folder, "read_file", file_path="cwd://src/deep/b.txt") == "one\n2\nthree"
    assert call(aos, folder, "delete_file", file_path="src/deep/b.txt") == "Deleted src/deep/b.txt."
    assert call(aos, folder, "list_directory", dir_path="src/deep") == "src/deep is empty."

    assert "it is not there" in fail(aos, folder, "read_file", file_path="src/a.txt")
    assert "that is no path" in fail(aos, folder, "read_file", file_path="../secret")
    assert "this tool may not use it" in fail(aos, folder, "write_file", file_path="home://x", content="")
    assert "may not use it" in fail(aos, folder, "read_file", file_path="home://.config/env/fs.env.json")
    (folder / "out").symlink_to(aos.home.state)
    assert "leads out" in fail(aos, folder, "read_file", file_path="out/etc/layout-version")
    assert "it is a folder" in fail(aos, folder, "delete_file", file_path="src")
    assert call(aos, folder, "read_file", file_path="home://.local/capsules/fs/Capsule.toml").startswith(
        "[package]"
    )
    denied = aos.run("logs", "fs").out
    assert 'denied operation=fs.write path=\\"home://x\\"' in denied.replace('"', '\\"')
    recorded = aos.run("audit", "tail", "-n", "200").out
    assert "fs.write cwd://src/a.txt by fs" in recorded
    assert "failed (boundary-escape)  fs.read cwd://out/etc/layout-version by fs" in recorded


def test_one_daemon_serves_every_folder_and_mixes_none(aos: Aos) -> None:
    aos.run("init", "-y")
    first, second = workspace(aos, "first"), workspace(aos, "second")
    for folder in (first, second):
        (folder / "name").write_text(folder.name)
    aos.run("start", folder=first)
    pid = aos.daemon_pid()
    for folder in (first, second, first, second):
        assert call(aos, folder, "read_file", file_path="name") == folder.name
        assert "that is no path" in fail(aos, folder, "read_file", file_path="../first/name")
    assert aos.daemon_pid() == pid
    nowhere = aos.root / "nowhere"
    nowhere.mkdir()
    own = call(aos, nowhere, "list_directory", dir_path=".")
    assert "Capsule.toml" in own.splitlines(), "without a workspace: the capsule's own folder"
    assert "may not use it" in fail(aos, nowhere, "write_file", file_path="Capsule.toml", content="")
    generation = aos.home.capsule(DEFAULT_PRINCIPAL, CapsuleName("fs"))
    assert "fs_write" in (generation / "Capsule.toml").read_text()


@pytest.mark.parametrize("root", ["cwd://", "home://", "/tmp/"])
def test_every_function_of_the_sdk_works_in_every_root(aos: Aos, root: str) -> None:
    aos.run("capsule", "install", str(build_project("filer")), "--approve-untrusted")
    folder = workspace(aos, "project")
    lines = json.loads(call(aos, folder, "exercise", path=f"{root}work"))
    assert lines == [
        "first second",
        f"{root}work/a/moved",
        "ErrorCode::InvalidPath",
        "false",
        "5",
        "ST sec",
        "8 true true",
        "ErrorCode::Access",
        "[0, 0, 120, 121]",
        "ErrorCode::NotFound",
        "14 more, then ErrorCode::Quota",
        "ok",
        "a c linked made one",
        "true",
        "false",
        "ErrorCode::NotEmpty",
        "7",
        "ErrorCode::NotFound",
        "ErrorCode::CrossVfs",
        "ErrorCode::CapabilityDenied",
    ]
    places = {
        "cwd://": folder,
        "home://": aos.home.principal(DEFAULT_PRINCIPAL),
        "/tmp/": aos.home.scratch(DEFAULT_PRINCIPAL),
    }
    assert "work" not in os.listdir(places[root])  # noqa: PTH208
    assert f"fs.remove-dir-all {root}work by filer" in aos.run("audit", "tail", "-n", "100").out


def current_umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask
