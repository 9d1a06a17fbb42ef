"""Whether an artifact that cargo calls fresh was made from these sources."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.cargo import Artifact, Crate, Project
from aos_cli.build.freshness import (
    owners,
    parse_dependencies,
    read_sources,
    record_file,
    render_record,
    stale_sources,
)


def crate(name: str, folder: Path, source: str | None = None) -> Crate:
    return Crate(id=f"{name}-id", name=name, version="1.0.0", source=source, folder=folder)


def project(root: Path, *others: Crate) -> Project:
    package = crate("demo", root)
    return Project(
        package=package,
        stem="demo",
        crates=(package, *others),
        workspace=root,
        target_folder=root / "target",
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("/t/demo.wasm: /p/src/lib.rs /p/src/more.rs\n", ["/p/src/lib.rs", "/p/src/more.rs"]),
        ("/t/demo.wasm: /p/my\\ code/lib.rs /p/a.rs\n", ["/p/my code/lib.rs", "/p/a.rs"]),
        ("a: /p/x\nb: /p/x /p/y\n\nnonsense\n", ["/p/x", "/p/y"]),
    ],
)
def test_dependency_files(text: str, names: list[str]) -> None:
    assert parse_dependencies(text) == tuple(Path(name) for name in names)


def test_sources_are_digested_and_a_missing_one_counts(tmp_path: Path) -> None:
    (tmp_path / "lib.rs").write_text("fn main() {}")
    (tmp_path / "demo.d").write_text(f"{tmp_path}/demo.wasm: {tmp_path}/lib.rs {tmp_path}/gone.rs")
    artifact = Artifact(path=tmp_path / "demo.wasm", is_fresh=True, libraries={})
    sources = read_sources(artifact)
    assert list(sources) == [f"{tmp_path}/lib.rs", f"{tmp_path}/gone.rs"]
    assert (len(sources[f"{tmp_path}/lib.rs"]), sources[f"{tmp_path}/gone.rs"]) == (64, "")


def test_bld_22_a_record_tells_what_changed(tmp_path: Path) -> None:
    here, record = project(tmp_path), tmp_path / "record"
    before = {"/p/a.rs": "1", "/p/b.rs": "2"}
    record.write_bytes(render_record(here, before))
    assert stale_sources(record, here, before) == ()
    assert stale_sources(record, here, {"/p/a.rs": "1", "/p/b.rs": "3", "/p/c.rs": "4"}) == (
        "/p/b.rs",
        "/p/c.rs",
    )


def test_a_record_of_another_project_of_the_same_name_tells_nothing(tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_bytes(render_record(project(tmp_path / "one"), {"/p/a.rs": "1"}))
    assert stale_sources(record, project(tmp_path / "two"), {"/p/a.rs": "1"}) is None


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", "{}", '{"schema": 1, "sources": 5}', '{"sources": {}}']
)
def test_a_missing_or_damaged_record_tells_nothing(tmp_path: Path, text: str | None) -> None:
    record = tmp_path / "record"
    if text is not None:
        record.write_text(text)
    assert stale_sources(record, project(tmp_path), {}) is None


def test_the_record_is_one_per_profile_in_the_target_folder(tmp_path: Path) -> None:
    here = project(tmp_path)
    assert record_file(here, debug=False) == tmp_path / "target" / "aos" / "demo-release.json"
    assert record_file(here, debug=True) == tmp_path / "target" / "aos" / "demo-debug.json"


def test_what_is_built_again_are_the_packages_that_own_the_files(tmp_path: Path) -> None:
    here = project(
        tmp_path,
        crate("inner", tmp_path / "inner"),
        crate("far", Path("/far")),
        crate("serde", Path("/cargo/serde"), source="registry"),
    )
    assert owners(here, ()) == ("demo",)
    changed = [f"{tmp_path}/inner/src/lib.rs", "/far/x.rs", "/cargo/serde/lib.rs", "/elsewhere"]
    assert owners(here, changed) == ("demo", "far", "inner")
