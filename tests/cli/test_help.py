"""The help of every command, word for word (tests/golden/cli/help), and how it is made.

After a change that is meant, write the files anew with `python -m tests.cli.test_help` and read what
differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer._click.core import Context

from aos_cli.lazy import make_command, split_examples
from aos_cli.tree import ROOT, Entry

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "cli" / "help"


def walk(entry: Entry, path: tuple[str, ...] = ("aos",)) -> Iterator[tuple[str, ...]]:
    yield path
    for child in entry.children:
        yield from walk(child, (*path, child.name))


PATHS = tuple(walk(ROOT))


def render_help(path: tuple[str, ...]) -> str:
    entry = ROOT
    for name in path[1:]:
        found = entry.child(name)
        assert found is not None
        entry = found
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "terminal_width": 100}
    context = Context(make_command(entry), info_name=" ".join(path), **settings)
    return context.get_help() + "\n"


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_the_help_word_for_word(path: tuple[str, ...]) -> None:
    assert render_help(path) == (GOLDEN / f"{'-'.join(path)}.txt").read_text(encoding="utf-8")


def test_there_is_no_golden_file_for_a_command_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {"-".join(path) for path in PATHS}


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_help_ends_with_examples_and_every_option_is_explained(path: tuple[str, ...]) -> None:
    text = render_help(path)
    assert "\nExamples:\n  " in text
    assert text.rindex("\nExamples:\n") > text.rindex("\nGlobal options:\n")
    for line in text.splitlines():
        words = line.split()
        if words and words[0].startswith("-") and "  " in line.strip():
            assert len(words) > 2, line


def test_prose_and_examples_are_taken_apart() -> None:
    assert split_examples("Do it.\n\n    Well.\n\n    Examples:\n      aos x\n      aos y\n") == (
        "Do it.\n\nWell.\n",
        ["aos x", "aos y"],
    )
    assert split_examples("Do it.") == ("Do it.", [])


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for one in PATHS:
        (GOLDEN / f"{'-'.join(one)}.txt").write_text(render_help(one), encoding="utf-8")
