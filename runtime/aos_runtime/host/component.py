"""Takes a component apart: which core module is the capsule, and what its functions look like.

wasmtime validates everything.  Compiling a component only to read its types would cost as much as compiling
its code a second time, so wasmtime is shown the component with every function body replaced by a trap:
types, imports, exports and canonical options are all still there to be checked, and the core module itself
is validated when it is compiled.

This room runs nothing.  A component that is more than one core module and wit-component's glue is refused:
the lane for those is not built yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wasmtime import Engine, WasmtimeError
from wasmtime import component as wc

from aos_runtime.capsule.wasm_bytes import COMPONENT_HEADER, CORE_HEADER, malformed, read_sections
from aos_runtime.errors import InvalidInput
from aos_runtime.host import wit
from aos_runtime.host.read_types import read_signature

HOOK_EXPORT = "astrid-hook-trigger"

_CORE_MODULE, _NESTED_COMPONENT = 1, 4
_EXPORTS, _CODE = 7, 10
_TRAP_BODY = b"\x03\0\0\x0b"
"""Size 3, no locals, `unreachable`, `end`."""
_HINT_REBUILD = "build the capsule with `aos capsule build`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A component, taken apart."""

    core: bytes
    """The capsule's own core module."""
    imports: Mapping[tuple[str, str], wit.Signature]
    """By interface and function."""


def take_apart(engine: Engine, component: bytes) -> Parts:
    """Validate a component's types and find its core module.

    InvalidInput `component-*` or `import-*` for a component that cannot run here, Corrupt
    `wasm-malformed` for bytes that are no component.
    """
    sections = [(kind, section.rest()) for kind, section in read_sections(component, COMPONENT_HEADER)]
    core = _own_module(sections)
    hollow = _hollow_out(sections)
    try:
        described = wc.Component(engine, hollow)
    except WasmtimeError as error:
        raise malformed(_first_line(error)) from error
    try:
        _check_hook(engine, described)
        return Parts(core=core, imports=_read_imports(engine, described))
    finally:
        described.close()


def _own_module(sections: list[tuple[int, bytes]]) -> bytes:
    """The one core module that is not glue."""
    own = [content for kind, content in sections if kind == _CORE_MODULE and not _is_glue(content)]
    if len(own) == 1 and all(kind != _NESTED_COMPONENT for kind, _ in sections):
        return own[0]
    raise InvalidInput(
        "component-several-modules",
        f"the component is made of {len(own)} core modules, and this runtime runs those made of one",
        hint="only capsules built from Rust with astrid-sdk run here today",
        modules=len(own),
    )


def _is_glue(module: bytes) -> bool:
    """Whether wit-component made it: the shim exports only numbers and its table, the fix-up nothing."""
    return all(name.isdigit() or name == "$imports" for name in _export_names(module))


def _hollow_out(sections: list[tuple[int, bytes]]) -> bytes:
    """The component with every core function's body replaced by a trap."""
    out = [COMPONENT_HEADER]
    for kind, content in sections:
        out.append(_section_bytes(kind, _hollow_module(content) if kind == _CORE_MODULE else content))
    return b"".join(out)


def _hollow_module(module: bytes) -> bytes:
    out = [CORE_HEADER]
    for kind, section in read_sections(module, CORE_HEADER):
        content = section.rest()
        if kind == _CODE:
            count = section.count()
            content = _encode_size(count) + _TRAP_BODY * count
        out.append(_section_bytes(kind, content))
    return b"".join(out)


def _read_imports(engine: Engine, component: wc.Component) -> dict[tuple[str, str], wit.Signature]:
    found: dict[tuple[str, str], wit.Signature] = {}
    budget = wit.TypeBudget()
    for interface, extern in component.type.imports(engine).items():
        item = extern.ty
        if isinstance(item, wc.FuncType):
            raise refused_import(interface, None)
        if not isinstance(item, wc.ComponentInstanceType):
            continue  # a type that the world names
        for name, member in item.exports(engine).items():
            if isinstance(kind := member.ty, wc.FuncType):
                if not interface.startswith("astrid:"):
                    raise refused_import(interface, name)
                found[interface, name] = read_signature(kind, budget)
    return found


def _check_hook(engine: Engine, component: wc.Component) -> None:
    export = component.type.exports(engine).get(HOOK_EXPORT)
    kind = None if export is None else export.ty
    if isinstance(kind, wc.FuncType) and read_signature(kind, wit.TypeBudget()) == wit.HOOK:
        return
    raise InvalidInput(
        "component-no-hook",
        f"the component does not export `{HOOK_EXPORT}` as a capsule must",
        hint="put #[capsule] on the capsule's impl block",
    )


def refused_import(interface: str, name: str | None) -> InvalidInput:
    """An import that this runtime never offers."""
    path = interface if name is None else f"{interface}::{name}"
    if interface.startswith("wasi:"):
        return InvalidInput(
            "import-wasi",
            f"the capsule imports `{path}`, and no WASI interface is ever offered",
            hint=f"build for wasm32-unknown-unknown: {_HINT_REBUILD}",
            path=path,
        )
    return InvalidInput(
        "import-unknown",
        f"the capsule imports `{path}`, which this runtime does not offer",
        hint="a capsule may import astrid:* interfaces only",
        path=path,
    )


def _export_names(module: bytes) -> list[str]:
    """The export names of a core module; function bodies are not looked at."""
    names = []
    for kind, section in read_sections(module, CORE_HEADER):
        for _ in range(section.count() if kind == _EXPORTS else 0):
            names.append(section.text())
            section.skip(1)
            section.unsigned()
    return names


def _encode_size(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _section_bytes(kind: int, content: bytes) -> bytes:
    return bytes((kind,)) + _encode_size(len(content)) + content


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:300]
