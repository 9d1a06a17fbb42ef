"""Which file makes a folder a project, and of what kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.kinds import Kind, find_kind, read_kind
from aos_runtime.errors import InvalidInput, NotFound


def test_the_first_file_of_the_order_decides(tmp_path: Path) -> None:
    found = []
    for kind in reversed(Kind):
        (tmp_path / kind.value).touch()
        found.append(find_kind(tmp_path))
    assert found == [Kind.MCP, Kind.NODE, Kind.EXTENSION, Kind.MANIFEST, Kind.CARGO]


def test_a_folder_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "Cargo.toml").mkdir()
    with pytest.raises(NotFound) as caught:
        read_kind(tmp_path)
    assert (caught.value.code, caught.value.message) == (
        "cargo-project-missing",
        f"there is no Cargo.toml, Capsule.toml or mcp.json in {tmp_path}",
    )


def test_javascript_is_refused_with_two_ways_out_although_an_mcp_json_is_there(tmp_path: Path) -> None:
    (tmp_path / "package.json").touch()
    (tmp_path / "mcp.json").touch()
    with pytest.raises(InvalidInput) as caught:
        read_kind(tmp_path)
    assert caught.value.code == "project-kind"
    assert "Capsule.toml" in caught.value.hint and "--from-mcp-json mcp.json" in caught.value.hint
    (tmp_path / "Capsule.toml").touch()
    assert read_kind(tmp_path) is Kind.MANIFEST
