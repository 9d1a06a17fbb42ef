"""Every command explains itself, and what the documents tell people to type really exists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer._click.core import Command, Context
from typer._click.exceptions import UsageError

from aos_cli.lazy import make_command, split_examples
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
    command: Command = make_command(TREE)
    context: Context | None = None
    rest = words
    while hasattr(command, "resolve_command"):
        context = Context(command, parent=context, info_name="aos")
        options, rest = leading_options(rest)
        if not rest or "--help" in options:
            return
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None, words
        command = found
    if "--help" not in rest:
        command.make_context(words[0], list(rest), parent=context)


def leading_options(words: list[str]) -> tuple[list[str], list[str]]:
    count = next((index for index, word in enumerate(words) if not word.startswith("-")), len(words))
    return words[:count], words[count:]


def typed_lines(text: str) -> Iterator[str]:
    """The commands in fenced shell blocks, and the inline ones that start with `aos ` or `./scripts/`."""
    for block in re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL):
        yield from (line.split("  #")[0].strip() for line in block.splitlines() if line.strip())
    yield from re.findall(r"`((?:aos|\./scripts/)[^`\n]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def aos_commands(line: str) -> Iterator[list[str]]:
    for part in re.split(r"\s*(?:&&|\||;)\s*", line):
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
    for line in typed_lines(text):
        for words in aos_commands(line):
            if not any(re.search(r"[A-Z{}…]|\.\.\.", word) for word in words):
                check_command_line(words)
        for script in re.findall(r"(?<!\S)\./scripts/([a-z]+)", line):
            path = ROOT / "scripts" / script
            assert path.is_file() and path.stat().st_mode & 0o111, script
