"""Every key of a valid text has its place; every duplicate has both."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.toml_positions import (
    MAX_DEPTH,
    Duplicate,
    KeyPath,
    Position,
    render_path,
    scan_positions,
)

TEXT = """\
# a comment with [brackets] and = signs
title = "x # not a comment"   # and one behind
"quoted key" . 'literal "one"' = 1

[package]
long = \"\"\"
[not a table]
key = "neither \\"\\"" \"\"\"
literal = '''
[[nor.this]] ''''
[[component]]
file = "a"
caps = { net = ["a", "b]"], x.y = 1 }
[[component]]
file = "b"
[component.inner]
list = [ 1, # one
  { k = 3 },
  [ "]" ],
]
"""


def place(line: int, column: int) -> Position:
    return Position(line=line, column=column)


def paths_of(value: object, path: KeyPath = ()) -> Iterator[KeyPath]:
    """Every path of a parsed text."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from paths_of(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from paths_of(inner, (*path, index))


def test_positions_of_a_text_with_every_form() -> None:
    found = {render_path(path): (at.line, at.column) for path, at in scan_positions(TEXT).places.items()}
    assert found == {
        "title": (2, 1),
        '"quoted key"': (3, 1),
        '"quoted key"."literal \\"one\\""': (3, 1),
        "package": (5, 1),
        "package.long": (6, 1),
        "package.literal": (9, 1),
        "component": (11, 1),
        "component[0]": (11, 1),
        "component[0].file": (12, 1),
        "component[0].caps": (13, 1),
        "component[0].caps.net": (13, 10),
        "component[0].caps.net[0]": (13, 17),
        "component[0].caps.net[1]": (13, 22),
        "component[0].caps.x": (13, 29),
        "component[0].caps.x.y": (13, 29),
        "component[1]": (14, 1),
        "component[1].file": (15, 1),
        "component[1].inner": (16, 1),
        "component[1].inner.list": (17, 1),
        "component[1].inner.list[0]": (17, 10),
        "component[1].inner.list[1]": (18, 3),
        "component[1].inner.list[1].k": (18, 5),
        "component[1].inner.list[2]": (19, 3),
        "component[1].inner.list[2][0]": (19, 5),
    }


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("[[a.b]]\nc = 1\n", {"a": (1, 1), "a.b": (1, 1), "a.b[0]": (1, 1), "a.b[0].c": (2, 1)}),
        ("[a.b.c]\n", {"a": (1, 1), "a.b": (1, 1), "a.b.c": (1, 1)}),
        ("x = { a = 'b, c = d', e = 1 }\n", {"x": (1, 1), "x.a": (1, 7), "x.e": (1, 23)}),
        ('x = { a = "b, c = d", e = 1 }\n', {"x": (1, 1), "x.a": (1, 7), "x.e": (1, 23)}),
        ('x = """a\nb = 1\n"""\ny = 1\n', {"x": (1, 1), "y": (4, 1)}),
        ("x = \'\'\'a\nb = 1\n\'\'\'\ny = 1\n", {"x": (1, 1), "y": (4, 1)}),
        ('"\\u0041" = 1', {"A": (1, 1)}),
        ('"\\U00000041\\u00e9" = 1', {'"Aé"': (1, 1)}),
        ('"\\u1e9e" = 1', {'"ẞ"': (1, 1)}),
        ('"\\U0010FFFF" = 1', {'"\U0010ffff"': (1, 1)}),
        ('"\\t\\b\\n\\f\\r\\"\\\\" = 1', {'"\t\b\n\f\r\\"\\"': (1, 1)}),
        ("'a.b'.c = 1", {'"a.b"': (1, 1), '"a.b".c': (1, 1)}),
        ("a = [ [1], [2, 3] ]", {"a": (1, 1), "a[0]": (1, 7), "a[0][0]": (1, 8), "a[1]": (1, 12),
                                 "a[1][0]": (1, 13), "a[1][1]": (1, 16)}),
    ],
)  # fmt: skip
def test_positions_of_each_form(text: str, places: dict[str, tuple[int, int]]) -> None:
    tomllib.loads(text)
    found = {render_path(path): (at.line, at.column) for path, at in scan_positions(text).places.items()}
    assert found == places


@pytest.mark.parametrize("text", ["a 1\nb = 2\n", "[a\nb = 2\n", "[[a]\nb = 2\n"])
def test_nothing_is_found_behind_a_mistake(text: str) -> None:
    assert scan_positions(text).places == {}


def test_an_escape_beyond_unicode_stays_as_it_is_written() -> None:
    assert scan_positions('"\\U00110000" = 1').places == {("\\U00110000",): place(1, 1)}


def test_a_key_has_32_parts_and_a_value_32_brackets() -> None:
    assert MAX_DEPTH == 32
    assert scan_positions(".".join(["a"] * 32) + " = 1").too_deep is None
    assert scan_positions(".".join(["a"] * 33) + " = 1").too_deep is not None
    assert scan_positions("a = " + "{ b = " * 31 + "1" + " }" * 31).too_deep is None
    assert scan_positions("a = " + "{ b = " * 32 + "1" + " }" * 32).too_deep is not None


def test_tomllib_agrees_that_these_are_the_keys() -> None:
    places = scan_positions(TEXT).places
    assert set(places) == set(paths_of(tomllib.loads(TEXT)))


def test_a_path_without_a_place_gets_the_nearest_above() -> None:
    positions = scan_positions(TEXT)
    assert positions.find(("component", 0, "missing")) == place(11, 1)
    assert positions.find(("nowhere",)) is None


@pytest.mark.parametrize(
    ("text", "path", "is_table", "first", "second"),
    [
        ("a = 1\na = 2\n", ("a",), False, place(1, 1), place(2, 1)),
        ('a.b = 1\n"a" . b = 2\n', ("a", "b"), False, place(1, 1), place(2, 1)),
        ("[t]\n[u]\n[t]\n", ("t",), True, place(1, 1), place(3, 1)),
        ("x = { a = 1, a = 2 }", ("x", "a"), False, place(1, 7), place(1, 14)),
        ("[t]\na = 1\n[t.a]\n", ("t", "a"), True, place(2, 1), place(3, 1)),
        ("[[t]]\n[t.u]\n[[t]]\n[t.u]\n[t.u]\n", ("t", 1, "u"), True, place(4, 1), place(5, 1)),
    ],
)
def test_duplicates(text: str, path: KeyPath, is_table: bool, first: Position, second: Position) -> None:
    expected = Duplicate(path=path, is_table=is_table, first=first, second=second)
    assert scan_positions(text).duplicates == [expected]
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(text)


@pytest.mark.parametrize("text", ["a = 1\n = 2\nb = 3", "a = 1\nb\nc = 3", "a = 1\n[b\n", 'a = 1\nb = "x\n'])
def test_what_stands_before_a_mistake_is_known(text: str) -> None:
    assert scan_positions(text).find(("a",)) == place(1, 1)
    assert scan_positions(text).too_deep is None


def test_nesting_has_a_bound() -> None:
    assert scan_positions("a = " + "[" * MAX_DEPTH + "]" * MAX_DEPTH).too_deep is None
    assert scan_positions("a = " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)).too_deep == place(1, 37)
    assert scan_positions(".".join(["a"] * (MAX_DEPTH + 1)) + " = 1").too_deep is not None


VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=8) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
TABLES = st.dictionaries(st.text(min_size=1, max_size=6), VALUES, max_size=5)


def flow(value: object) -> str:
    """A value as TOML writes it inside a line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{text(key)} = {flow(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return text(value) if isinstance(value, str) else repr(value)


def text(value: str) -> str:
    return json.dumps(value).replace("\x7f", "\\u007f")


@given(tables=TABLES)
def test_every_key_that_tomllib_finds_has_a_place(tables: dict[str, object]) -> None:
    written = "\n".join(f"{text(key)} = {flow(value)}" for key, value in tables.items())
    assume_valid = tomllib.loads(written) if "\\ud" not in written else None
    if assume_valid is not None:
        positions = scan_positions(written)
        assert set(paths_of(assume_valid)) <= set(positions.places)
        assert not positions.duplicates


@given(tables=TABLES)
def test_tables_with_heads_too(tables: dict[str, object]) -> None:
    written = tomlkit.dumps(
        {key: value for key, value in tables.items() if isinstance(value, dict | int | str)}
    )
    positions = scan_positions(written)
    assert set(paths_of(tomllib.loads(written))) <= set(positions.places)
    assert not positions.duplicates


@given(garbage=st.text(max_size=200) | st.text(alphabet="[]{}=.,\"'\\\n #ab", max_size=200))
def test_any_text_is_scanned_to_some_point(garbage: str) -> None:
    positions = scan_positions(garbage)
    lines = garbage.split("\n")
    for found in positions.places.values():
        assert 1 <= found.line <= len(lines)
        assert 1 <= found.column <= len(lines[found.line - 1]) + 1
