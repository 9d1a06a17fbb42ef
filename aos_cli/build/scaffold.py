"""New projects from templates.

A template is data: `template.toml` with typed parameters and a list of files, and `content/*.tmpl` in which
`{{ parameter }}` is replaced.  A scaffold is written whole or not at all, and never over something that the
author has changed.  This module renders and writes; it runs no program.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from aos_cli.data import data_folder
from aos_runtime.errors import Conflict, Corrupt, InvalidInput, NotFound, Unavailable
from aos_runtime.names import CapsuleName, parse_capsule_name

DEFAULT_KIND = "tool"
_SCHEMA = 1
_PLACEHOLDER = re.compile(r"\{\{ ([a-z_]+) \}\}")
_NAME = re.compile(r"[a-z](?:-?[a-z0-9])*")
_KEYWORDS = """
abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen
if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true
try type typeof union unsafe unsized use virtual where while yield
"""
_CRATES = "std core alloc proc_macro test astrid astrid_sdk astrid_sys astrid_types serde serde_json"
_TAKEN = frozenset((_KEYWORDS + _CRATES).split())
"""Names that a crate cannot have: keywords of Rust, and crates that every project of ours sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateFile:
    """One file of a template: its path in a project, its text, and the texts that earlier versions had."""

    path: str
    text: str
    previous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A kind of project.  `parameters` maps a name to its type."""

    kind: str
    summary: str
    parameters: dict[str, str]
    files: tuple[TemplateFile, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """One file to write.  `unchanged` are the bytes that a template would have put there, in any version."""

    path: str
    data: bytes
    unchanged: frozenset[bytes]


def list_kinds() -> tuple[str, ...]:
    """The kinds of project that this installation can make."""
    return tuple(sorted(path.parent.name for path in data_folder("templates").glob("*/template.toml")))


def load_template(kind: str, *, folder: Path | None = None) -> Template:
    """The built-in template `kind`; a folder of that name elsewhere is never looked at (case NEW-05).

    NotFound `template-unknown` with the kinds there are; Corrupt `template-damaged`.
    """
    kinds = list_kinds() if folder is None else (kind,)
    if kind not in kinds:
        raise NotFound(
            "template-unknown",
            f"there is no template {kind!r}",
            hint=f"use --kind {' or '.join(kinds)}",
            kinds=list(kinds),
        )
    root = data_folder("templates") / kind if folder is None else folder
    try:
        table = tomllib.loads((root / "template.toml").read_text("utf-8"))
        if table["schema"] != _SCHEMA:
            raise ValueError(f"schema {table['schema']!r}")
        return Template(
            kind=kind,
            summary=str(table["summary"]),
            parameters={str(key): str(value["type"]) for key, value in table["parameters"].items()},
            files=tuple(_file(root / "content", row) for row in table["file"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            "template-damaged", f"the template {kind!r} is damaged: {error}", hint="reinstall aos"
        ) from error


def check_project_name(text: str) -> CapsuleName:
    """The name rule of new projects: `a-z` first, `[a-z0-9-]`, no `--`, no `-` last (build-install.md 1.2).

    InvalidInput `project-name`, with a name that would do where there is one near.
    """
    if _NAME.fullmatch(text):
        return parse_capsule_name(text)
    near = "-".join(re.findall(r"[a-z0-9]+", text.lower())).lstrip("0123456789-")
    hint = f"try `{near}`" if _NAME.fullmatch(near) else "a name like `my-capsule` will do"
    raise InvalidInput(
        "project-name",
        f"{text[:160]!r} cannot be the name of a capsule: a-z first, then a-z, 0-9 and hyphens between",
        hint=hint,
        name=text[:160],
    )


def render(template: Template, name: CapsuleName) -> tuple[Rendered, ...]:
    """The files of a project called `name`, in the template's order."""
    values = {key: _parameter(kind, name) for key, kind in template.parameters.items()}

    def fill(text: str) -> bytes:
        return _PLACEHOLDER.sub(lambda match: values[match.group(1)], text).encode()

    return tuple(
        Rendered(
            path=file.path,
            data=fill(file.text),
            unchanged=frozenset(fill(text) for text in (file.text, *file.previous)),
        )
        for file in template.files
    )


def write_project(target: Path, files: Sequence[Rendered], *, force: bool) -> tuple[str, ...]:
    """Write a project; gives the paths that were written.

    Conflict `project-exists` for a folder that is not empty, without `force`; with it, Conflict
    `project-changed` lists the files that the author has changed, and nothing is written.
    """
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise _exists(target, "is no folder")
    if not target.exists() or not any(target.iterdir()):
        _write_new(target, files)
        return tuple(file.path for file in files)
    if not force:
        raise _exists(target, "exists already, and is not empty")
    return _write_over(target, files)


def _parameter(kind: str, name: CapsuleName) -> str:
    if kind == "capsule-name":
        return name
    if kind == "crate-identifier":
        crate = name.replace("-", "_")
        return f"{crate}_capsule" if crate in _TAKEN else crate
    raise Corrupt(
        "template-damaged", f"a template has a parameter of the unknown type {kind!r}", hint="reinstall aos"
    )


def _file(content: Path, row: dict[str, object]) -> TemplateFile:
    previous = row.get("previous", [])
    names = [str(name) for name in previous] if isinstance(previous, list) else []
    return TemplateFile(
        path=str(row["path"]),
        text=(content / str(row["content"])).read_text("utf-8"),
        previous=tuple((content / name).read_text("utf-8") for name in names),
    )


def _exists(target: Path, why: str) -> Conflict:
    return Conflict(
        "project-exists",
        f"{target} {why}",
        hint="choose another name or --path; --force writes what is absent or unchanged from the template",
        path=str(target),
    )


def _write_new(target: Path, files: Sequence[Rendered]) -> None:
    """Write beside the target and rename: the project appears whole."""
    made = _make_parents(target.parent)
    stage = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        for file in files:
            _put(stage / file.path, file.data)
        stage.replace(target)
    except BaseException as error:
        shutil.rmtree(stage, ignore_errors=True)
        for folder in made:
            folder.rmdir()
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise


def _write_over(target: Path, files: Sequence[Rendered]) -> tuple[str, ...]:
    """Replace what is absent or as a template left it; all changes are undone where one fails."""
    changed = [file.path for file in files if not _is_untouched(target, file)]
    if changed:
        raise Conflict(
            "project-changed",
            f"--force would overwrite what you changed in {target}: {', '.join(changed)}",
            hint="move those files away, or keep the project as it is",
            path=str(target),
            changed=changed,
        )
    stage = target / f".aos-new.{secrets.token_hex(6)}.tmp"
    undo: list[tuple[Path, bytes | None]] = []
    try:
        for file in files:
            _put(stage / file.path, file.data)
        for file in files:
            path = target / file.path
            undo.append((path, path.read_bytes() if path.exists() else None))
            path.parent.mkdir(parents=True, exist_ok=True)
            (stage / file.path).replace(path)
    except BaseException as error:
        _undo(undo)
        if isinstance(error, OSError):
            raise _unwritable(target, error) from error
        raise
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return tuple(file.path for file in files)


def _is_untouched(target: Path, file: Rendered) -> bool:
    """Whether nothing of the author's is lost by writing `file`; a link on the way is the author's."""
    path = target / file.path
    on_the_way = [path, *path.parents][: len(Path(file.path).parts)]
    if any(part.is_symlink() for part in on_the_way):
        return False
    if not os.path.lexists(path):
        return all(part.is_dir() for part in on_the_way[1:] if part.exists())
    return path.is_file() and path.read_bytes() in file.unchanged


def _undo(steps: Sequence[tuple[Path, bytes | None]]) -> None:
    for path, data in reversed(steps):
        if data is None:
            path.unlink(missing_ok=True)
        else:
            path.write_bytes(data)


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _make_parents(folder: Path) -> list[Path]:
    """Make the folders above a project; gives those that were made, the deepest first."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    return missing


def _unwritable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "project-unwritable",
        f"cannot write {path}: {error.strerror or error}",
        hint="choose another --path, or look at its permissions and free space",
        path=str(path),
    )
