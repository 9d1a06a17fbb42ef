"""Where the author's flags come from, and what is added to them once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from aos_cli.build.cargo_config import CargoConfig
from aos_cli.build.rustflags import GETRANDOM_FLAG, TARGET, Flags, Remap, decide_flags

VARIABLE = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS"
CONFIG = CargoConfig(
    build_rustflags=("-Cbuild",),
    target_rustflags={
        TARGET: ("-Ctarget",),
        "cfg(unix)": ("-Cunix",),
        'cfg(target_os = "unknown")': ("-Cos",),
    },
)


def facts() -> frozenset[str]:
    return frozenset(('target_os="unknown"',))


def no_facts() -> frozenset[str]:
    raise AssertionError("the compiler was asked where no cfg table has flags")


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, ("-Ctarget", "-Cos")),
        ({VARIABLE: "-Cvariable -x"}, ("-Ctarget", "-Cvariable", "-x", "-Cos")),
        ({"RUSTFLAGS": " -Cone  -Ctwo "}, ("-Cone", "-Ctwo")),
        ({"RUSTFLAGS": ""}, ()),
        ({"RUSTFLAGS": "-Cone", "CARGO_ENCODED_RUSTFLAGS": "-Ca b\x1f-Cc"}, ("-Ca b", "-Cc")),
    ],
)
def test_the_first_source_that_is_there_counts_alone(
    environ: Mapping[str, str], flags: tuple[str, ...]
) -> None:
    assert decide_flags(CONFIG, environ, facts, ()) == Flags(
        values=(*flags, GETRANDOM_FLAG), getrandom_added=True
    )


def test_build_flags_count_where_the_target_has_none() -> None:
    config = CargoConfig(build_rustflags=("-Cbuild",))
    found = decide_flags(config, {"CARGO_BUILD_RUSTFLAGS": "-Cmore"}, no_facts, ())
    assert found.values == ("-Cbuild", "-Cmore", GETRANDOM_FLAG)


@pytest.mark.parametrize(
    "flags",
    [
        (GETRANDOM_FLAG,),
        ("--cfg", 'getrandom_backend="custom"'),
        ('--cfg=getrandom_backend="wasm_js"',),
    ],
)
def test_bld_04_a_chosen_backend_is_left_alone(flags: tuple[str, ...]) -> None:
    config = CargoConfig(target_rustflags={TARGET: flags})
    assert decide_flags(config, {}, no_facts, ()) == Flags(values=flags, getrandom_added=False)


def test_an_inner_folder_comes_after_the_outer_one_since_the_last_match_wins() -> None:
    remaps = (
        Remap(folder=Path("/home/ada/.cargo/registry"), name="/cargo/registry"),
        Remap(folder=Path("/home/ada/my code/p"), name="/capsule"),
        Remap(folder=Path("/home/ada/.cargo"), name="/cargo"),
    )
    found = decide_flags(CargoConfig(), {"RUSTFLAGS": GETRANDOM_FLAG}, no_facts, remaps)
    assert found.values == (
        GETRANDOM_FLAG,
        "--remap-path-prefix=/home/ada/.cargo=/cargo",
        "--remap-path-prefix=/home/ada/.cargo/registry=/cargo/registry",
        "--remap-path-prefix=/home/ada/my code/p=/capsule",
    )


def test_the_override_is_one_variable_and_keeps_blanks_in_a_flag() -> None:
    flags = Flags(values=("-Ca b", "-Cc"), getrandom_added=False)
    assert flags.environ() == {"CARGO_ENCODED_RUSTFLAGS": "-Ca b\x1f-Cc"}
