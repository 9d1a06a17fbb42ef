"""What a path means and which entry allows it: host-abi.md 6.1 as a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.file_gate import (
    MAX_PATH_BYTES,
    FileDenial,
    FileGate,
    Place,
    Root,
    home_named,
    home_shows,
    home_takes,
    parse_place,
)

WORKSPACE_BASE = ("srv", "work", "proj")


@pytest.mark.parametrize(
    ("path", "root", "parts"),
    [
        ("cwd://a/b", Root.WORKSPACE, ("a", "b")),
        ("a/b", Root.WORKSPACE, ("a", "b")),
        ("./a//b/.", Root.WORKSPACE, ("a", "b")),
        ("/etc/passwd", Root.WORKSPACE, ("etc", "passwd")),
        ("", Root.WORKSPACE, ()),
        (".", Root.WORKSPACE, ()),
        ("foo://x", Root.WORKSPACE, ("foo:", "x")),
        ("workspace://x", Root.WORKSPACE, ("workspace:", "x")),
        ("CWD://x", Root.WORKSPACE, ("CWD:", "x")),
        ("home://", Root.HOME, ()),
        ("home://notes/", Root.HOME, ("notes",)),
        ("home:///notes", Root.HOME, ("notes",)),
        ("/tmp", Root.SCRATCH, ()),
        ("/tmp/x", Root.SCRATCH, ("x",)),
        ("/tmpx", Root.WORKSPACE, ("tmpx",)),
        ("tmp/x", Root.WORKSPACE, ("tmp", "x")),
        ("%2e%2e/x", Root.WORKSPACE, ("%2e%2e", "x")),
        ("...", Root.WORKSPACE, ("...",)),
    ],
)
def test_a_path_is_a_root_and_names(path: str, root: Root, parts: tuple[str, ...]) -> None:
    assert parse_place(path) == Place(root, parts)


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "cwd://..",
        "home://docs/../x",
        "a/..",
        "/tmp/../x",
        "a\0b",
        "a\nb",
        "a\x7f",
        "x" * (MAX_PATH_BYTES + 1),
    ],
)
def test_what_is_no_path(path: str) -> None:
    assert parse_place(path) is None


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/tmp", "/tmp"),
        ("/tmp/x//y", "/tmp/x/y"),
        ("a//b", "cwd://a/b"),
        ("", "cwd://"),
        ("home://", "home://"),
        ("home:///a", "home://a"),
    ],
)
def test_a_place_is_written_as_a_guest_writes_it(path: str, written: str) -> None:
    place = parse_place(path)
    assert place is not None
    assert place.render() == written


def test_a_path_has_4096_bytes_at_most() -> None:
    assert parse_place("x" * 4096) is not None
    assert parse_place("é" * 2048) is not None
    assert parse_place("é" * 2048 + "x") is None


@given(st.text(max_size=60))
def test_a_place_leads_back_to_itself(path: str) -> None:
    place = parse_place(path)
    if place is not None:
        assert parse_place(place.render()) == place
        assert ".." not in place.parts


def allows(entry: str, path: str) -> bool:
    place = parse_place(path)
    assert place is not None
    base = {Root.WORKSPACE: WORKSPACE_BASE, Root.HOME: None, Root.SCRATCH: ("tmp",)}[place.root]
    return FileGate((entry,)).covers(place.root, place.parts, base)


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        ("*", ["cwd://", "a", "/etc/x"], ["home://a", "/tmp/x"]),
        ("cwd://", ["a/b", "cwd://"], ["home://a", "/tmp"]),
        ("cwd://sub", ["sub", "sub/x"], ["subway", "cwd://", "home://sub"]),
        ("home://", ["home://", "home://a"], ["a", "/tmp/a"]),
        ("home://notes", ["home://notes", "home://notes/x"], ["home://notes2", "home://", "notes"]),
        ("home://docs/", ["home://docs//x", "home://docs/./x"], ["home://docs-evil/x", "home://DOCS/x"]),
        ("/srv/work/proj", ["a", "cwd://"], ["home://a", "/tmp/a"]),
        ("/srv/work/proj/sub", ["sub/x"], ["subx", "x"]),
        ("/srv/work", ["a"], ["home://a"]),
        ("/srv/work/pro", [], ["a"]),
        ("/tmp", ["/tmp", "/tmp/x"], ["tmp/x", "home://tmp"]),
        ("/tmp/x", ["/tmp/x/y"], ["/tmp/y", "/tmp"]),
        ("/", ["a", "/tmp/x"], ["home://a"]),
        ("home://a/../b", [], ["home://b", "home://a"]),
        ("docs", [], ["docs", "home://docs"]),
        ("", [], ["a", "home://a"]),
        ("foo://a", [], ["a", "foo://a"]),
    ],
)
def test_abi_05_an_entry_allows_whole_names_below_it(
    entry: str, allowed: list[str], refused: list[str]
) -> None:
    assert [path for path in allowed if not allows(entry, path)] == []
    assert [path for path in refused if allows(entry, path)] == []


def test_nothing_listed_is_nothing_allowed() -> None:
    assert not FileGate(()).covers(Root.WORKSPACE, (), WORKSPACE_BASE)


def test_what_lies_below_is_touched_and_not_covered() -> None:
    gate = FileGate(("cwd://out/secret",))
    assert gate.touches(Root.WORKSPACE, ("out",), WORKSPACE_BASE)
    assert not gate.covers(Root.WORKSPACE, ("out",), WORKSPACE_BASE)
    assert not gate.touches(Root.WORKSPACE, ("other",), WORKSPACE_BASE)


def test_an_entry_that_steps_up_allows_nothing_on_its_way() -> None:
    assert not FileGate(("home://a/../b",)).touches(Root.HOME, ("a",), None)
    assert not FileGate(("/srv/../etc",)).touches(Root.WORKSPACE, (), ("srv",))


names = st.sampled_from(["a", "b", "docs", "x"])


@given(st.lists(names, max_size=3), st.lists(names, max_size=3), names)
def test_what_is_covered_stays_covered_further_down(entry: list[str], path: list[str], more: str) -> None:
    gate = FileGate((f"cwd://{'/'.join(entry)}",))
    if gate.covers(Root.WORKSPACE, tuple(path), None):
        assert gate.covers(Root.WORKSPACE, (*path, more), None)
        assert gate.touches(Root.WORKSPACE, tuple(path[:1]), None)


@pytest.mark.parametrize(
    ("parts", "shown", "taken"),
    [
        ("", True, True),
        ("notes/a", True, True),
        (".config", True, False),
        (".config/own.toml", True, True),
        (".config/own/env", True, True),
        (".config/env", False, False),
        (".config/env/x.json", False, False),
        (".CONFIG/Env", False, False),
        (".local", True, False),
        (".local/capsules/fs/Capsule.toml", True, False),
        (".local/generations/fs/1", False, False),
        (".local/tokens", False, False),
        (".Local/Tokens", False, False),
        ("wit/a.wit", True, False),
        (".configs", True, True),
    ],
)
def test_of_its_home_a_guest_sees_no_more_than_it_should(parts: str, shown: bool, taken: bool) -> None:
    place = tuple(part for part in parts.split("/") if part)
    assert (home_shows(place, place), home_takes(place)) == (shown, taken)


def test_a_generation_is_reached_through_the_installed_capsules_only() -> None:
    generation = (".local", "generations", "fs", "1", "meta.json")
    assert home_shows(generation, (".local", "capsules", "fs", "meta.json"))
    assert not home_shows(generation, ("shortcut", "meta.json"))
    assert not home_shows((".local", "tokens"), (".local", "capsules", "fs"))


def test_a_denial_is_one_line() -> None:
    denial = FileDenial(operation="fs.read", path='home://a"b', rule="r", allow="x")
    assert denial.render() == 'denied operation=fs.read path="home://a\\"b" rule="r" allow="x"'
    assert denial.kind == ("fs.read", 'home://a"b', "r")
    bare = FileDenial(operation="fs.read", path="p", rule="r")
    assert bare.render(repeated=3) == 'denied operation=fs.read path="p" rule="r" repeated=3'


def test_an_installed_file_is_named_by_its_capsule() -> None:
    generation = (".local", "generations", "fs", "1", "wit", "a.wit")
    assert home_named(generation) == (".local", "capsules", "fs", "wit", "a.wit")
    assert home_named(generation[:4]) == (".local", "capsules", "fs")
    for other in ((), ("notes",), generation[:3], (".local", "capsules", "fs", "1", "x")):
        assert home_named(other) == other
