"""Looking into a WebAssembly binary without running or compiling it.

A bounded parser for what a capsule's checks need: which kind of file this is, what a component or core module
imports, and which lifecycle exports the author wrote.  It validates nothing else (the engine and `wasm-tools`
do) and never reads past a section.
Source: host-abi.md 2.1, 2.2, 4; architecture decision on stub exports; cases BLD-13, CMP-10, CMP-19.
"""

from __future__ import annotations

from enum import Enum

from aos_runtime.capsule.wasm_bytes import COMPONENT_HEADER, Cursor, malformed, read_sections
from aos_runtime.capsule.wasm_calls import Calls, read_calls
from aos_runtime.capsule.wasm_core import CoreImport, CoreModule, read_core

LIFECYCLE_EXPORTS = ("run", "astrid-install", "astrid-upgrade")

_TEXT_SAMPLE_BYTES = 512
_MAX_LEVELS = 8
_MAX_WRAPPER_BYTES = 16
_NATIVE_MAGICS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
_PRECOMPILED_MARK = b".wasmtime."
_TEXT_CONTROLS = frozenset(b"\t\n\r\f")
_SECTION_IMPORT = 10
_SORT_CORE, _SORT_VALUE, _SORT_TYPE = 0, 2, 3


class WasmKind(Enum):
    """What a file that should be a component turns out to be (case CMP-10)."""

    COMPONENT = "component"
    CORE = "core module"
    EMPTY = "empty"
    TEXT = "text"
    ELF = "native program"
    PRECOMPILED = "precompiled code"
    HTML = "web page"
    UNKNOWN = "unknown"


def kind_of(data: bytes) -> WasmKind:
    """What `data` is, by its first bytes."""
    if not data:
        return WasmKind.EMPTY
    if data.startswith(b"\0asm") and len(data) >= 8:
        # The second half of the version word is the layer: 0 is a core module, 1 a component.
        return {0: WasmKind.CORE, 1: WasmKind.COMPONENT}.get(data[6], WasmKind.UNKNOWN)
    if data.startswith(_NATIVE_MAGICS):
        return WasmKind.PRECOMPILED if _PRECOMPILED_MARK in data else WasmKind.ELF
    return _text_kind(data[:_TEXT_SAMPLE_BYTES])


def component_imports(data: bytes) -> tuple[str, ...]:
    """The names of a component's imports, such as `astrid:ipc/host@1.0.0`, without those of types.

    Corrupt `wasm-malformed`.
    """
    names = []
    for kind, section in read_sections(data, COMPONENT_HEADER):
        for _ in range(section.count() if kind == _SECTION_IMPORT else 0):
            name = _extern_name(section)
            if _skip_extern_type(section) != _SORT_TYPE:
                names.append(name)
    return tuple(names)


def core_imports(core: bytes) -> tuple[CoreImport, ...]:
    """The imports of a core module; each is `module::name` as text (BLD-13).  Corrupt `wasm-malformed`."""
    return read_core(core).imports


def implemented_exports(core: bytes) -> frozenset[str]:
    """Which of `run`, `astrid-install` and `astrid-upgrade` the author wrote; the SDK exports all three.

    An export is a stub iff it does only what the other two do first: its body is nothing but argument-less
    calls, and these begin the call lists of both others.  Single-call wrappers are followed, and so is the
    last call of a body of nothing but calls, which is where a debug build keeps what a release build has
    inlined.  Where not all three are there, those that are have been written.  Corrupt `wasm-malformed`.
    """
    module = read_core(core)
    present = [name for name in LIFECYCLE_EXPORTS if name in module.exports]
    if len(present) < len(LIFECYCLE_EXPORTS):
        return frozenset(present)
    levels = {name: _levels(module, module.exports[name]) for name in present}
    others = {name: [levels[other] for other in present if other != name] for name in present}
    return frozenset(name for name in present if not _is_stub(levels[name], others[name]))


def _is_stub(levels: list[Calls], others: list[list[Calls]]) -> bool:
    starts = (level.targets for level in levels if level.only_calls)
    return any(all(_begins(start, other) for other in others) for start in starts)


def _begins(start: tuple[int, ...], levels: list[Calls]) -> bool:
    return any(level.targets[: len(start)] == start for level in levels)


def _levels(module: CoreModule, index: int) -> list[Calls]:
    """A function's call list, then the same with its last call replaced by what that one calls, and so on.

    Ends at the first list whose function does more than call.
    """
    levels = [_calls(module, index)]
    while levels[-1].only_calls and levels[-1].targets and len(levels) < _MAX_LEVELS:
        *before, last = levels[-1].targets
        inner = _calls(module, last)
        levels.append(Calls(targets=(*before, *inner.targets), only_calls=inner.only_calls))
    return levels


def _calls(module: CoreModule, index: int) -> Calls:
    """What function `index` calls, each behind its wrappers; a call with arguments is more than a call."""
    body = module.body(index)
    if body is None:
        return Calls(targets=(index,), only_calls=False)
    calls = read_calls(body)
    takes_nothing = all(module.is_argument_less(target) for target in calls.targets)
    targets = tuple(_behind_wrappers(module, target) for target in calls.targets)
    return Calls(targets=targets, only_calls=calls.only_calls and takes_nothing)


def _behind_wrappers(module: CoreModule, index: int) -> int:
    """The function that `index` comes to where it does nothing but call one without arguments."""
    for _ in range(_MAX_LEVELS):
        body = module.body(index) if module.is_argument_less(index) else None
        calls = read_calls(body) if body is not None and len(body) <= _MAX_WRAPPER_BYTES else None
        if calls is None or not calls.only_calls or len(calls.targets) != 1:
            break
        if not module.is_argument_less(calls.targets[0]):
            break
        index = calls.targets[0]
    return index


def _extern_name(cursor: Cursor) -> str:
    form = cursor.byte()
    if form not in (0, 1):
        raise malformed(f"the name before byte {cursor.at} is of an unknown form")
    return cursor.text()


def _skip_extern_type(cursor: Cursor) -> int:
    """Step over what an import or export is; gives its sort."""
    sort = cursor.byte()
    if sort == _SORT_CORE:
        cursor.byte()
        cursor.unsigned()
    elif sort in (_SORT_TYPE, _SORT_VALUE):
        bound = cursor.byte()
        if not (sort == _SORT_TYPE and bound == 1):  # a subtype of resource has no more to say
            cursor.skip_number()
    else:
        cursor.unsigned()
    return sort


def _text_kind(sample: bytes) -> WasmKind:
    start = sample.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return WasmKind.HTML
    if any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in sample):
        return WasmKind.UNKNOWN
    # The sample may end inside a character.
    whole = sample.decode("utf-8", "ignore").encode("utf-8")
    return WasmKind.TEXT if len(sample) - len(whole) < 4 and sample.startswith(whole) else WasmKind.UNKNOWN
