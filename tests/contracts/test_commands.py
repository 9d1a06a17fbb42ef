"""Every command explains itself, and what the documents tell people to type really exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer._click.core import Command, Context
from typer._click.exceptions import UsageError

from aos_cli.lazy import LazyGroup, make_command, split_examples
from aos_cli.tree import ROOT as TREE
from aos_cli.tree import Entry

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "docs/differences.md", "docs/security.md", "docs/benchmarks.md")


def leaves(entry: Entry, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Entry]]:
    for child in entry.children:
        if child.children:
            yield from leaves(child, (*path, child.name))
        else:
            yield (*path, child.name), child


LEAVES = dict(leaves(TREE))


def check_command_line(words: list[str]) -> None:
    """Parse `aos WORDS` as the program would, without running it.  UsageError where it would refuse."""
    command: Command | None = make_command(TREE)
    context: Context | None = None
    name, rest = "aos", [word for word in words if word != "--version"]  # `aos_cli.app` takes that one itself
    while command is not None and rest and "--help" not in rest:
        context = command.make_context(name, list(rest), parent=context)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not isinstance(command, LazyGroup):
            return
        name, command, rest = command.resolve_command(context, rest)  # type: ignore[assignment]


def check_command_path(words: list[str]) -> None:
    """Check that the leading words name a command.  UsageError where they do not."""
    entry = TREE
    for word in words:
        if not entry.children or word.startswith("-"):
            return
        found = entry.child(word)
        if found is None:
            raise UsageError(f"{entry.name} has no command {word}")
        entry = found


def fenced_lines(text: str) -> Iterator[str]:
    """The lines of the shell blocks of a document, without their comments."""
    for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
        yield from (line.split("  #")[0].strip() for line in block.splitlines() if line.strip())


def inline_commands(text: str) -> Iterator[str]:
    """What stands in backquotes within the prose and starts like a command."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    yield from re.findall(r"`((?:aos|\./scripts/)[^`\n]*)`", prose)


def aos_commands(line: str) -> Iterator[list[str]]:
    """The `aos` commands of one line of shell, without redirections and assignments before them."""
    for part in re.split(r"\s*(?:&&|\||;)\s*", re.sub(r"\s+[0-9]?>>?\s*\S+", "", line)):
        words = shlex.split(part)
        words = words[next((i for i, word in enumerate(words) if "=" not in word), len(words)) :]
        if words and words[0] == "aos":
            yield words[1:]


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_has_prose_and_examples_that_parse(path: tuple[str, ...]) -> None:
    prose, examples = split_examples(make_command(LEAVES[path]).help or "")
    assert prose
    assert examples, "a command's help ends with examples"
    own = [words for line in examples for words in aos_commands(line)]
    assert any(words[: len(path)] == list(path) for words in own), examples
    for words in own:
        check_command_line(words)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_of_every_command_has_help(path: tuple[str, ...]) -> None:
    command = make_command(LEAVES[path])
    silent = [param.name for param in command.params if param.param_type_name == "option" and not param.help]
    assert silent == []


def test_the_check_refuses_what_does_not_exist() -> None:
    for words in (["capsule", "instal", "x"], ["status", "--nonsense"], ["nonsense"]):
        with pytest.raises(UsageError):
            check_command_line(words)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_in_a_document_exists(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    fenced, inline = list(fenced_lines(text)), list(inline_commands(text))
    for words in (words for line in fenced for words in aos_commands(line)):
        check_command_line(words)
    for words in (words for line in inline for words in aos_commands(line)):
        check_command_path(words)
    for script in re.findall(r"(?<!\S)\./scripts/([a-z]+)", "\n".join([*fenced, *inline])):
        path = ROOT / "scripts" / script
        assert path.is_file() and path.stat().st_mode & 0o111, script
