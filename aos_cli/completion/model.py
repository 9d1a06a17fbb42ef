"""The command tree as completion sees it: paths, options, what their values are.  Imports every command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from typer._click.core import Context

from aos_cli.build.scaffold import list_kinds
from aos_cli.data import SCRIPT_FILES
from aos_cli.lazy import COLORS, FORMATS, make_command
from aos_cli.tree import ROOT, Entry

ValueKind = Literal["none", "words", "capsule", "tool", "template", "file", "archive", "folder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a value may be.  `words` are choices that are known beforehand."""

    kind: ValueKind
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option with all its spellings; `value` is None for a flag."""

    names: tuple[str, ...]
    help: str
    value: Value | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One command or group.  `path` starts with `aos`; `argument` is what its words are."""

    path: str
    summary: str
    children: tuple[tuple[str, str], ...]
    options: tuple[Option, ...]
    argument: Value


def render_value(value: Value) -> str:
    """`kind` or `kind:word word`, as the shell functions take it apart."""
    return f"{value.kind}:{' '.join(value.words)}" if value.words else value.kind


NOTHING = Value(kind="none")
_ARGUMENTS = {
    "aos capsule install": Value(kind="archive"),
    "aos capsule build": Value(kind="folder"),
    "aos capsule show": Value(kind="capsule"),
    "aos capsule remove": Value(kind="capsule"),
    "aos logs": Value(kind="capsule"),
    "aos tool show": Value(kind="tool"),
    "aos tool call": Value(kind="tool"),
    "aos completions": Value(kind="words", words=tuple(SCRIPT_FILES)),
}
_OPTIONS = {
    "--format": Value(kind="words", words=FORMATS),
    "--color": Value(kind="words", words=COLORS),
    "--kind": Value(kind="template", words=list_kinds()),
    "--level": Value(kind="words", words=("trace", "debug", "info", "warn", "error")),
    "--compression": Value(kind="words", words=("gzip", "zstd")),
    "--output": Value(kind="folder"),
    "--path": Value(kind="folder"),
    "--workspace": Value(kind="folder"),
    "--input": Value(kind="file"),
    "--from-mcp-json": Value(kind="file"),
}


def read_tree() -> tuple[Node, ...]:
    """Every node of the tree, the root first, in the order of the help."""
    return tuple(_walk(ROOT, "aos"))


def _walk(entry: Entry, path: str) -> list[Node]:
    command = make_command(entry)
    context = Context(command, info_name=path, help_option_names=["-h", "--help"])
    options = [_option(param) for param in command.get_params(context) if param.param_type_name == "option"]
    if entry is ROOT:
        options.append(Option(names=("-V", "--version"), help="Show the version.", value=None))
    node = Node(
        path=path,
        summary=entry.summary,
        children=tuple((child.name, child.summary) for child in entry.children),
        options=tuple(options),
        argument=_ARGUMENTS.get(path, NOTHING),
    )
    nodes = [node]
    for child in entry.children:
        nodes += _walk(child, f"{path} {child.name}")
    return nodes


def _option(param: Any) -> Option:
    names = tuple(
        sorted((*param.opts, *param.secondary_opts), key=lambda name: (name.startswith("--"), name))
    )
    takes_value = not (param.is_flag or param.count)
    value = next((_OPTIONS[name] for name in names if name in _OPTIONS), NOTHING)
    help_text = " ".join((param.help or "").replace("`", "").split())
    return Option(names=names, help=help_text, value=value if takes_value else None)
