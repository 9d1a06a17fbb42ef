"""One rule for every relative path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.paths import folded, path_problem, without_dots


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "Capsule.toml",
        "wit/deps/acme/acme.wit",
        "assets/naïve.txt",
        "a-b/c_d.e",
        ".hidden/x",
        "a b/c",
        "ab:c",
        "console.txt",
        "com10",
        "x" * 255,
        "/".join(["d"] * 32),
        "assets/工具.md",
        "...a",
    ],
)
def test_paths_that_hold(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("", "is empty"),
        ("/etc/passwd", "is absolute"),
        ("C:\\x", "is absolute"),
        ("c:x", "is absolute"),
        ("..", "leaves the capsule's folder"),
        ("../x", "leaves the capsule's folder"),
        ("wit/../../x", "leaves the capsule's folder"),
        ("a\\..\\x", "has a backslash"),
        ("a\0b", "has a control or invisible character"),
        ("a\nb", "has a control or invisible character"),
        ("a\u2028b", "has a control or invisible character"),
        ("a\u2029b", "has a control or invisible character"),
        ("Cap\u200csule.toml", "has a control or invisible character"),
        ("a\u202egnp.exe", "has a control or invisible character"),
        ("a\udc80", "has a control or invisible character"),
        ("a//b", "has an empty segment"),
        ("a/", "has an empty segment"),
        ("a/./b", "has an empty segment"),
        ("a./b", "has a segment that ends in a dot or a space"),
        ("a /b", "has a segment that ends in a dot or a space"),
        ("assets/CON", "is a device name on Windows"),
        ("nul.txt", "is a device name on Windows"),
        ("a/Com1.tar.gz", "is a device name on Windows"),
        ("LPT²", "is a device name on Windows"),
        ("aux .txt", "is a device name on Windows"),
        ("x" * 256, "has a name longer than 255 bytes"),
        ("é" * 128, "has a name longer than 255 bytes"),
        ("a/" * 300 + "a", "is deeper than 32 folders"),
        (("x" * 200 + "/") * 6 + "x", "is longer than 1024 bytes"),
    ],
)
def test_paths_that_do_not(path: str, problem: str) -> None:
    assert path_problem(path) == problem


def test_a_path_has_1024_bytes_in_32_names_of_255() -> None:
    assert path_problem("/".join(["x" * 255] * 4) + "/") == "has an empty segment"
    assert path_problem("/".join(["x" * 255] * 4) + "y") == "has a name longer than 255 bytes"
    longest = "/".join(["x" * 255, "x" * 255, "x" * 255, "é" * 127, "y"])
    assert len(longest.encode()) == 1024
    assert path_problem(longest) is None
    assert path_problem(f"{longest}y") == "is longer than 1024 bytes"
    assert path_problem("/".join(["d"] * 33)) == "is deeper than 32 folders"


@pytest.mark.parametrize(
    "name",
    [
        "con",
        "prn",
        "aux",
        "nul",
        "conin$",
        "conout$",
        *(f"{port}{n}" for port in ("com", "lpt") for n in "0123456789¹²³"),
    ],
)
def test_every_device_of_windows_is_refused(name: str) -> None:
    for path in (name, name.upper(), f"{name}.txt", f"a/{name} .x/b"):
        assert path_problem(path) == "is a device name on Windows"
    assert path_problem(f"{name}x") is None


@pytest.mark.parametrize(
    ("path", "plain"),
    [("./a", "a"), ("a/./b", "a/b"), (".", ""), ("./", ""), ("a/..", "a/.."), ("a//b", "a//b")],
)
def test_dots_are_dropped_and_nothing_else(path: str, plain: str) -> None:
    assert without_dots(path) == plain


@pytest.mark.parametrize(
    ("one", "other"),
    [("A.wasm", "a.wasm"), ("café", "café"), ("CAFÉ", "café"), ("straße", "STRASSE"), ("K", "k"), ("Σ", "ς")],
)
def test_names_that_some_file_system_takes_for_one(one: str, other: str) -> None:
    assert folded(one) == folded(other)


@given(path=st.text(alphabet=st.characters(codec="utf-8"), max_size=30))
def test_folding_keeps_the_segments_of_a_path(path: str) -> None:
    """The wall folds a whole path once and splits it after, so no `/` may come or go."""
    assert folded(path).count("/") == path.count("/")
