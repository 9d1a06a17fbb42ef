"""The compiler flags of a capsule: what the author configured, and what every capsule needs besides.

Cargo takes flags from one place only (the first of `CARGO_ENCODED_RUSTFLAGS`, `RUSTFLAGS`, the target's
configuration, the build configuration), so the author's are read from there and everything is passed on
through the first one.  The value depends on nothing but configuration and folders: a second build finds the
same flags and relinks nothing.  This module decides; it runs no program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from aos_cli.build.cargo_config import CargoConfig, cfg_holds

TARGET = "wasm32-unknown-unknown"
GETRANDOM_FLAG = '--cfg=getrandom_backend="custom"'
ENCODED = "CARGO_ENCODED_RUSTFLAGS"
_SEPARATOR = "\x1f"
_TARGET_VARIABLE = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS"
_BUILD_VARIABLE = "CARGO_BUILD_RUSTFLAGS"

Facts = Callable[[], frozenset[str]]
"""Asks the compiler for the lines of `--print cfg`; called only where a `cfg(...)` table has flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags to compile with.  `getrandom_added`: the author's did not have the getrandom flag."""

    values: tuple[str, ...]
    getrandom_added: bool

    def environ(self) -> dict[str, str]:
        """The one override, as an environment variable of cargo."""
        return {ENCODED: _SEPARATOR.join(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remap:
    """A folder of this machine, and the name that takes its place in the artifact."""

    folder: Path
    name: str


def decide_flags(
    config: CargoConfig, environ: Mapping[str, str], facts: Facts, remaps: Sequence[Remap]
) -> Flags:
    """The author's flags, the getrandom flag once where no backend is chosen, and the remapped folders."""
    own = configured_flags(config, environ, facts)
    added = () if _chooses_getrandom(own) else (GETRANDOM_FLAG,)
    return Flags(values=(*own, *added, *remap_flags(remaps)), getrandom_added=bool(added))


def configured_flags(config: CargoConfig, environ: Mapping[str, str], facts: Facts) -> tuple[str, ...]:
    """The flags that plain `cargo build` would use for the target (cargo reference, `build.rustflags`)."""
    if ENCODED in environ:
        return tuple(flag for flag in environ[ENCODED].split(_SEPARATOR) if flag)
    if "RUSTFLAGS" in environ:
        return tuple(environ["RUSTFLAGS"].split())
    flags = list(config.target_rustflags.get(TARGET, ()))
    flags += environ.get(_TARGET_VARIABLE, "").split()
    for key in sorted(config.target_rustflags):
        if key.startswith("cfg(") and cfg_holds(key, facts()):
            flags += config.target_rustflags[key]
    if flags:
        return tuple(flags)
    return (*config.build_rustflags, *environ.get(_BUILD_VARIABLE, "").split())


def _chooses_getrandom(flags: Sequence[str]) -> bool:
    """Whether a backend is chosen already, in one word (`--cfg=x`) or two (`--cfg x`)."""
    values = [flag.removeprefix("--cfg=") for flag in flags]
    return any(value.startswith("getrandom_backend=") for value in values)


def remap_flags(remaps: Sequence[Remap]) -> tuple[str, ...]:
    """Compiler flags that rename folders.  The last match wins: a folder inside another one comes later."""
    ordered = sorted(remaps, key=lambda remap: (len(remap.folder.parts), str(remap.folder)))
    return tuple(f"--remap-path-prefix={remap.folder}={remap.name}" for remap in ordered)
