"""`aos capsule build`: arguments and failures before a compiler runs.  The building is in the journeys."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.home import Home
from tests.cli.conftest import RunAos


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
    assert ended.error["message"] == f"there is no Cargo.toml in {(project / path).resolve()}"


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
