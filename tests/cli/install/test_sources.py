"""aos_cli.install.sources: what a SOURCE word names (cases INS-15, INS-24)."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.install.sources import Source, expand_source
from aos_runtime.errors import InvalidInput, NotFound


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_ins_24_a_relative_path_is_the_caller_s(tmp_path: Path) -> None:
    touch(tmp_path / "a" / "dist" / "demo.capsule")
    mine = touch(tmp_path / "b" / "dist" / "demo.capsule")
    assert expand_source("./dist/demo.capsule", tmp_path / "b") == (Source(path=mine, is_project=False),)


def test_ins_24_a_linked_folder_is_followed_once(tmp_path: Path) -> None:
    real = touch(tmp_path / "real" / "demo.capsule")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert expand_source("link/demo.capsule", tmp_path) == (Source(path=real, is_project=False),)


def test_ins_24_a_quoted_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    file = touch(tmp_path / "user" / "x.capsule")
    assert expand_source("~/x.capsule", tmp_path) == (Source(path=file, is_project=False),)
    literal = touch(tmp_path / "~" / "x.capsule")
    assert expand_source("~/x.capsule", tmp_path) == (Source(path=literal, is_project=False),)


def test_ins_15_a_folder_gives_all_its_archives_by_name(tmp_path: Path) -> None:
    files = [touch(tmp_path / "dist" / f"{name}.capsule") for name in ("b", "a", "c")]
    touch(tmp_path / "dist" / "notes.txt")
    assert expand_source("dist", tmp_path) == tuple(
        Source(path=path, is_project=False) for path in sorted(files)
    )


@pytest.mark.parametrize("file", ["Cargo.toml", "Capsule.toml", "mcp.json", "gemini-extension.json"])
def test_a_project_is_built_even_where_archives_lie_beside_it(tmp_path: Path, file: str) -> None:
    touch(tmp_path / "demo" / file)
    touch(tmp_path / "demo" / "old.capsule")
    assert expand_source("demo", tmp_path) == (Source(path=tmp_path / "demo", is_project=True),)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("missing.capsule", "source-missing", "no such file or folder: {here}/missing.capsule"),
        ("notes.txt", "source-kind", "not a .capsule file: {here}/notes.txt"),
        ("notes.txt/x.capsule", "source-missing", "no such file or folder: {here}/notes.txt/x.capsule"),
        (
            "empty",
            "source-kind",
            "nothing to install in {here}/empty: no .capsule file, Cargo.toml, Capsule.toml or mcp.json",
        ),
        ("@org/repo", "source-remote", "cannot install from the network yet: @org/repo"),
        (
            "https://x.example/a.capsule",
            "source-remote",
            "cannot install from the network yet: https://x.example/a.capsule",
        ),
    ],
)
def test_what_cannot_be_installed_says_why(tmp_path: Path, text: str, code: str, message: str) -> None:
    touch(tmp_path / "notes.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises((InvalidInput, NotFound)) as refused:
        expand_source(text, tmp_path)
    assert (refused.value.code, refused.value.message) == (code, message.format(here=tmp_path))
