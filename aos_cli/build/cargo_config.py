"""The part of cargo's configuration files that decides how a capsule is compiled.

Cargo has no stable command that prints its merged configuration, so the hierarchy is read here: the project's
folder and every one above it, then cargo's home, `config` before `config.toml`, with `include`
(build-install.md 2.5).  This module reads files and merges values; it never writes one and runs no program.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from aos_runtime.errors import InvalidInput

_MAX_INCLUDE_DEPTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class CargoConfig:
    """What the files say, each list in cargo's order: the farthest file first, the nearest last."""

    build_rustflags: tuple[str, ...] = ()
    build_targets: tuple[str, ...] = ()
    rustc: str | None = None
    target_rustflags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Flags by the key of their `[target.KEY]` table: a triple or a `cfg(...)` expression."""


def read_cargo_config(folder: Path, environ: Mapping[str, str]) -> CargoConfig:
    """The configuration that cargo applies in `folder`.  InvalidInput `cargo-config` for a broken file."""
    merged = CargoConfig()
    for path in reversed(_config_files(folder, environ)):
        for layer in _with_includes(path, ()):
            merged = _merge(merged, layer)
    return merged


def cargo_home(environ: Mapping[str, str]) -> Path:
    """`$CARGO_HOME`, else `~/.cargo`."""
    text = environ.get("CARGO_HOME")
    return Path(text) if text else Path(environ.get("HOME", "/")) / ".cargo"


def _config_files(folder: Path, environ: Mapping[str, str]) -> list[Path]:
    """The files that apply, the nearest first; cargo's home counts last, and once."""
    home = cargo_home(environ)
    folders = [parent / ".cargo" for parent in (folder, *folder.parents)]
    files = []
    for candidate in (*[one for one in folders if one != home], home):
        named = (candidate / "config", candidate / "config.toml")
        found = next((path for path in named if path.is_file()), None)
        if found is not None:
            files.append(found)
    return files


def _with_includes(path: Path, seen: tuple[Path, ...]) -> list[dict[str, object]]:
    """One file as layers: what it includes, then itself.  A circle is refused."""
    if path in seen or len(seen) > _MAX_INCLUDE_DEPTH:
        raise _broken(path, "it includes itself")
    table = _parse(path)
    layers: list[dict[str, object]] = []
    for name, optional in _includes(table.get("include")):
        included = path.parent / name
        if optional and not included.is_file():
            continue
        layers += _with_includes(included, (*seen, path))
    return [*layers, table]


def _includes(value: object) -> list[tuple[str, bool]]:
    if isinstance(value, str):
        return [(value, False)]
    if isinstance(value, Mapping) and isinstance(value.get("path"), str):
        return [(value["path"], value.get("optional") is True)]
    if isinstance(value, list):
        return [pair for item in value for pair in _includes(item)]
    return []


def _parse(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise _broken(path, str(error)) from error


def _broken(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "cargo-config",
        f"cannot read the cargo configuration {path}: {why}",
        hint="correct that file; cargo itself would refuse it too",
        path=str(path),
    )


def _merge(under: CargoConfig, table: Mapping[str, object]) -> CargoConfig:
    """`under`, with the values of a nearer file: lists are joined, texts are replaced."""
    build = _table(table, "build")
    flags = dict(under.target_rustflags)
    for key, section in _table(table, "target").items():
        if isinstance(section, Mapping) and "rustflags" in section:
            flags[key] = _join(flags.get(key, ()), section["rustflags"])
    rustc = build.get("rustc")
    targets = build.get("target")
    return CargoConfig(
        build_rustflags=_join(under.build_rustflags, build.get("rustflags")),
        build_targets=split_flags(targets) if targets is not None else under.build_targets,
        rustc=rustc if isinstance(rustc, str) else under.rustc,
        target_rustflags=flags,
    )


def _table(table: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = table.get(key)
    return value if isinstance(value, Mapping) else {}


def _join(under: tuple[str, ...], value: object) -> tuple[str, ...]:
    """An array is joined to what farther files gave; one text replaces it."""
    if isinstance(value, list):
        return under + split_flags(value)
    return split_flags(value) if isinstance(value, str) else under


def split_flags(value: object) -> tuple[str, ...]:
    """A list of texts as it is, one text split at blanks."""
    if isinstance(value, str):
        return tuple(value.split())
    if isinstance(value, list):
        return tuple(item for item in value if isinstance(item, str))
    return ()


# cfg(...) expressions

_TOKEN = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*|"[^"]*"|[(),=])')


def cfg_holds(expression: str, facts: frozenset[str]) -> bool:
    """Whether `cfg(...)` holds, given the lines of `rustc --print cfg`.  A malformed one does not."""
    tokens = _TOKEN.findall(expression)
    if "".join(tokens) != re.sub(r'\s+(?=(?:[^"]*"[^"]*")*[^"]*$)', "", expression):
        return False
    try:
        value, rest = _evaluate(tokens, facts)
    except (IndexError, ValueError):
        return False
    return value and not rest


def _evaluate(tokens: Sequence[str], facts: frozenset[str]) -> tuple[bool, Sequence[str]]:
    name, rest = tokens[0], tokens[1:]
    if rest and rest[0] == "(":
        values, rest = _arguments(rest[1:], facts)
        return _combine(name, values), rest
    if rest and rest[0] == "=":
        return f"{name}={rest[1]}" in facts, rest[2:]
    return name in facts, rest


def _arguments(tokens: Sequence[str], facts: frozenset[str]) -> tuple[list[bool], Sequence[str]]:
    values = []
    while tokens[0] != ")":
        value, tokens = _evaluate(tokens, facts)
        values.append(value)
        if tokens[0] == ",":
            tokens = tokens[1:]
    return values, tokens[1:]


def _combine(name: str, values: list[bool]) -> bool:
    match name:
        case "all":
            return all(values)
        case "any":
            return any(values)
        case "not" | "cfg" if len(values) == 1:
            return values[0] if name == "cfg" else not values[0]
    raise ValueError(name)
