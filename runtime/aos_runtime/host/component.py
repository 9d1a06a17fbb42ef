"""Takes a component apart: whether it is one core module, what its functions look like, what it asks for.

wasmtime validates everything.  Compiling a component only to read its types would cost as much as compiling
its code a second time, so wasmtime is shown the component with every function body replaced by a trap:
types, imports, exports and canonical options are all still there to be checked, and the core module itself
is validated when it is compiled.

This room runs nothing, and decides nothing but what is refused in either lane.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wasmtime import Engine, WasmtimeError
from wasmtime import component as wc

from aos_runtime.capsule.wasm import LIFECYCLE_EXPORTS, implemented_exports
from aos_runtime.capsule.wasm_bytes import (
    COMPONENT_HEADER,
    CORE_HEADER,
    Cursor,
    malformed,
    read_sections,
)
from aos_runtime.errors import InvalidInput, LimitExceeded
from aos_runtime.host import wit
from aos_runtime.host.read_types import read_signature

HOOK_EXPORT = "astrid-hook-trigger"
MAX_NESTING = 16
MAX_RESOURCE_TYPES = 256
"""Each is compared with those before; the published interfaces have 16."""

_CORE_MODULE, _NESTED_COMPONENT, _CANONICAL = 1, 4, 8
_MEMORIES, _EXPORTS, _CODE = 5, 7, 10
_LIFT, _LOWER, _RESOURCE_FUNCTIONS = 0, 1, (2, 3, 4)
_UTF8, _MEMORY_REALLOC_POST_RETURN = 0, (3, 4, 5)
_NEVER_OFFERED = (wc.ModuleType, wc.ComponentType)
_TRAP_BODY = b"\x03\0\0\x0b"
"""Size 3, no locals, `unreachable`, `end`."""
_HINT_REBUILD = "build the capsule with `aos capsule build`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A component, taken apart."""

    core: bytes | None
    """Its one core module, where it is made of one and glue; None where it is more."""
    imports: Mapping[tuple[str, str], wit.Signature]
    """By interface and function."""
    resources: tuple[tuple[str, str], ...]
    """The resource types it imports, each with the interface that defines it."""
    implemented: tuple[str, ...]
    """Which of `run`, `astrid-install`, `astrid-upgrade` it exports and the author wrote."""
    memory_pages: tuple[int, ...]
    """What each memory of its modules starts with."""


def take_apart(engine: Engine, component: bytes) -> Parts:
    """Validate a component's types and find what there is to know before it is compiled.

    InvalidInput `component-*` or `import-*` for a component that cannot run here, Corrupt
    `wasm-malformed` for bytes that are no component.
    """
    sections = [(kind, section.rest()) for kind, section in read_sections(component, COMPONENT_HEADER)]
    modules = list(_modules(sections))
    try:
        described = wc.Component(engine, _hollow_out(sections))
    except WasmtimeError as error:
        raise malformed(reason_of(error)) from error
    try:
        exports = _read_exports(engine, described)
        imports, resources = _read_imports(engine, described)
    finally:
        described.close()
    return Parts(
        core=_own_module(sections),
        imports=imports,
        resources=resources,
        implemented=_implemented(modules, exports),
        memory_pages=tuple(pages for module in modules for pages in _memory_pages(module)),
    )


def _own_module(sections: list[tuple[int, bytes]]) -> bytes | None:
    """The one core module that is not glue, lifted and lowered in the one way that the edge knows."""
    own = [content for kind, content in sections if kind == _CORE_MODULE and not _is_glue(content)]
    canonical = (Cursor(content) for kind, content in sections if kind == _CANONICAL)
    if len(own) != 1 or any(kind == _NESTED_COMPONENT for kind, _ in sections):
        return None
    return own[0] if all(map(_is_usual, canonical)) else None


def _is_usual(canonical: Cursor) -> bool:
    """Whether everything is synchronous and UTF-8 in a 32-bit memory."""
    for _ in range(canonical.count()):
        kind = canonical.byte()
        if kind not in (_LIFT, _LOWER):
            if kind not in _RESOURCE_FUNCTIONS:
                return False
            canonical.unsigned()
            continue
        canonical.byte()
        canonical.unsigned()
        for _ in range(canonical.count()):
            option = canonical.byte()
            if option in _MEMORY_REALLOC_POST_RETURN:
                canonical.unsigned()
            elif option != _UTF8:
                return False
        if kind == _LIFT:
            canonical.unsigned()
    return True


def _modules(sections: list[tuple[int, bytes]], depth: int = 0) -> Iterator[bytes]:
    """All core modules, those of nested components too."""
    if depth > MAX_NESTING:
        raise malformed(f"it is nested more than {MAX_NESTING} deep")
    for kind, content in sections:
        if kind == _CORE_MODULE:
            yield content
        elif kind == _NESTED_COMPONENT:
            nested = read_sections(content, COMPONENT_HEADER)
            yield from _modules([(inner, section.rest()) for inner, section in nested], depth + 1)


def _implemented(modules: list[bytes], exports: frozenset[str]) -> tuple[str, ...]:
    """Of what the component exports, what is no stub: the first module that has all three tells."""
    for module in modules:
        if exports.issuperset(LIFECYCLE_EXPORTS) and set(LIFECYCLE_EXPORTS) <= set(_export_names(module)):
            return tuple(sorted(implemented_exports(module)))
    return tuple(sorted(exports))


def _memory_pages(module: bytes) -> Iterator[int]:
    """The initial size of each memory that a module defines."""
    for kind, section in read_sections(module, CORE_HEADER):
        for _ in range(section.count() if kind == _MEMORIES else 0):
            flags = section.byte()
            yield section.unsigned()
            if flags & 1:
                section.skip_number()
            if flags & 8:  # a page size of its own
                section.skip_number()


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


def _read_imports(
    engine: Engine, component: wc.Component
) -> tuple[dict[tuple[str, str], wit.Signature], tuple[tuple[str, str], ...]]:
    functions: dict[tuple[str, str], wit.Signature] = {}
    resources: list[tuple[str, str, wc.ResourceType]] = []
    budget = wit.TypeBudget()
    for interface, extern in component.type.imports(engine).items():
        item = extern.ty
        if isinstance(item, (wc.FuncType, *_NEVER_OFFERED)) or (
            isinstance(item, wc.ResourceType) and all(item != known for _, _, known in resources)
        ):
            raise refused_import(interface, None)
        if not isinstance(item, wc.ComponentInstanceType):
            continue  # a type that the world names
        for name, member in item.exports(engine).items():
            kind = member.ty
            is_foreign = not interface.startswith("astrid:")
            if isinstance(kind, (wc.ComponentInstanceType, *_NEVER_OFFERED)) or (
                is_foreign and isinstance(kind, wc.FuncType | wc.ResourceType)
            ):
                raise refused_import(interface, name)
            if isinstance(kind, wc.FuncType):
                functions[interface, name] = read_signature(kind, budget)
            elif isinstance(kind, wc.ResourceType) and all(kind != known for _, _, known in resources):
                resources.append((interface, name, kind))
                _check_count(len(resources))
    return functions, tuple((interface, name) for interface, name, _ in resources)


def _check_count(resources: int) -> None:
    if resources > MAX_RESOURCE_TYPES:
        raise LimitExceeded(
            "import-too-many",
            f"the capsule imports {resources} resource types, and may import {MAX_RESOURCE_TYPES}",
            hint="build the capsule with a released astrid-sdk",
        )


def _read_exports(engine: Engine, component: wc.Component) -> frozenset[str]:
    """Which lifecycle functions there are; the hook must be."""
    exports = component.type.exports(engine)
    names = (HOOK_EXPORT, *LIFECYCLE_EXPORTS)
    found = {name: _signature_of(exports[name].ty) for name in names if name in exports}
    if found.pop(HOOK_EXPORT, None) != wit.HOOK:
        raise InvalidInput(
            "component-no-hook",
            f"the component does not export `{HOOK_EXPORT}` as a capsule must",
            hint="put #[capsule] on the capsule's impl block",
        )
    for name, signature in found.items():
        if signature != wit.LIFECYCLE:
            raise InvalidInput(
                "component-lifecycle",
                f"the capsule exports `{name}` with a parameter or a result",
                hint="build the capsule with `aos capsule build`",
                name=name,
            )
    return frozenset(found)


def _signature_of(kind: object) -> wit.Signature | None:
    return read_signature(kind, wit.TypeBudget()) if isinstance(kind, wc.FuncType) else None


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


def reason_of(error: WasmtimeError) -> str:
    """Why wasmtime does not take a binary: the innermost cause, in one line."""
    lines = str(error).strip().splitlines() or ["no reason was given"]
    return lines[-1].strip()[:300]
