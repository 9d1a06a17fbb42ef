"""The part of cargo's configuration that decides flags and target."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_cli.build.cargo_config import cargo_home, cfg_holds, read_cargo_config
from aos_runtime.errors import InvalidInput

FACTS = frozenset(('target_arch="wasm32"', 'target_os="unknown"', 'target_family="wasm"', "panic"))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_nothing_configured(tmp_path: Path) -> None:
    config = read_cargo_config(tmp_path, {"CARGO_HOME": str(tmp_path / "home")})
    assert (config.build_rustflags, config.build_targets, config.rustc, dict(config.target_rustflags)) == (
        (),
        (),
        None,
        {},
    )


def test_lists_join_from_far_to_near_and_texts_are_replaced(tmp_path: Path) -> None:
    project = tmp_path / "work" / "project"
    write(tmp_path / "home" / "config.toml", '[build]\nrustflags = ["-Chome"]\ntarget = "far"\nrustc = "far"')
    write(tmp_path / "work" / ".cargo" / "config.toml", '[build]\nrustflags = ["-Cwork"]')
    write(
        project / ".cargo" / "config.toml",
        '[build]\nrustflags = ["-Cnear"]\ntarget = "near"\n[target.x]\nrustflags = "-a  -b"',
    )
    config = read_cargo_config(project, {"CARGO_HOME": str(tmp_path / "home")})
    assert config.build_rustflags == ("-Chome", "-Cwork", "-Cnear")
    assert (config.build_targets, config.rustc) == (("near",), "far")
    assert config.target_rustflags == {"x": ("-a", "-b")}


def test_the_file_without_a_suffix_wins_in_one_folder(tmp_path: Path) -> None:
    write(tmp_path / ".cargo" / "config", 'build.target = "one"')
    write(tmp_path / ".cargo" / "config.toml", 'build.target = "two"')
    assert read_cargo_config(tmp_path, {"HOME": str(tmp_path / "user")}).build_targets == ("one",)


def test_the_home_counts_once_where_the_project_lies_in_it(tmp_path: Path) -> None:
    write(tmp_path / ".cargo" / "config.toml", 'build.rustflags = ["-Conce"]')
    config = read_cargo_config(tmp_path / "project", {"HOME": str(tmp_path)})
    assert config.build_rustflags == ("-Conce",)


def test_included_files_come_first_and_may_be_absent(tmp_path: Path) -> None:
    text = 'include = ["more.toml", { path = "none.toml", optional = true }]\nbuild.rustflags = ["-Cown"]'
    write(tmp_path / ".cargo" / "config.toml", text)
    write(tmp_path / ".cargo" / "more.toml", 'build.rustflags = ["-Cmore"]')
    assert read_cargo_config(tmp_path, {"HOME": "/none"}).build_rustflags == ("-Cmore", "-Cown")


@pytest.mark.parametrize("text", ["a = ", 'include = "config.toml"', 'include = "absent.toml"'])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    write(tmp_path / ".cargo" / "config.toml", text)
    with pytest.raises(InvalidInput) as caught:
        read_cargo_config(tmp_path, {"HOME": "/none"})
    assert caught.value.code == "cargo-config"


def test_the_home_of_cargo() -> None:
    assert cargo_home({"HOME": "/home/ada"}) == Path("/home/ada/.cargo")
    assert cargo_home({"HOME": "/home/ada", "CARGO_HOME": "/opt/cargo"}) == Path("/opt/cargo")


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ('cfg(target_arch = "wasm32")', True),
        ('cfg(target_arch="x86_64")', False),
        ('cfg(all(target_family = "wasm", target_os = "unknown"))', True),
        ('cfg(any(unix, target_os = "unknown",))', True),
        ("cfg(not(unix))", True),
        ("cfg(unix)", False),
        ("cfg(panic)", True),
        ("cfg(all())", True),
        ("cfg(any())", False),
        ("cfg(not(unix)", False),
        ("cfg(all(unix) extra)", False),
        ("cfg(what(unix))", False),
        ("cfg()", False),
        ('cfg(target_arch = "wasm32"', False),
        ("cfg(unix;)", False),
    ],
)
def test_cfg_expressions(expression: str, holds: bool) -> None:
    assert cfg_holds(expression, FACTS) is holds
