"""The parts of a core module that checks look at: imports, exported functions, signatures, bodies.

Source: WebAssembly core specification, binary format of modules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from aos_runtime.capsule.wasm_bytes import CORE_HEADER, Cursor, malformed, read_sections

_TYPES, _IMPORTS, _FUNCTIONS, _EXPORTS, _CODE = 1, 2, 3, 7, 10
_FUNCTION_TYPE = 0x60
_KINDS = ("function", "table", "memory", "global", "tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreImport:
    """One import of a core module."""

    module: str
    name: str
    kind: str
    type_index: int | None

    def __str__(self) -> str:
        return f"{self.module}::{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreModule:
    """What was read.  Function indices count the imported ones first; `exports` holds functions only.

    `signatures` are (parameters, results) by type index, as far as they could be followed.
    """

    imports: tuple[CoreImport, ...]
    signatures: tuple[tuple[int, int], ...]
    types: tuple[int, ...]
    exports: dict[str, int]
    bodies: tuple[bytes, ...]
    imported_types: tuple[int, ...]
    """The type index of each imported function."""

    def body(self, index: int) -> bytes | None:
        """The body of function `index`; None where it is imported or out of range."""
        at = index - len(self.imported_types)
        return self.bodies[at] if 0 <= at < len(self.bodies) else None

    def is_argument_less(self, index: int) -> bool:
        """Whether function `index` takes nothing and gives nothing."""
        at = index - len(self.imported_types)
        kinds, at = (self.imported_types, index) if at < 0 else (self.types, at)
        if at >= len(kinds) or kinds[at] >= len(self.signatures):
            return False
        return self.signatures[kinds[at]] == (0, 0)


def read_core(data: bytes) -> CoreModule:
    """Read a core module.  Corrupt `wasm-malformed` where a section cannot be followed."""
    sections = dict(read_sections(data, CORE_HEADER))

    def section(kind: int) -> Cursor:
        return sections.get(kind, Cursor(b"\0"))

    imports = tuple(_imports(section(_IMPORTS)))
    return CoreModule(
        signatures=tuple(_signatures(section(_TYPES))),
        imports=imports,
        imported_types=tuple(one.type_index for one in imports if one.type_index is not None),
        types=tuple(_numbers(section(_FUNCTIONS))),
        exports=dict(_exported_functions(section(_EXPORTS))),
        bodies=tuple(_bodies(section(_CODE))),
    )


def skip_value_type(cursor: Cursor) -> None:
    """Step over a value type."""
    if cursor.byte() in (0x63, 0x64):  # a reference, whose heap type follows
        cursor.skip_number()


def _signatures(section: Cursor) -> Iterator[tuple[int, int]]:
    for _ in range(section.count()):
        if section.byte() != _FUNCTION_TYPE:
            return  # what follows a type of another kind cannot be counted
        yield _value_types(section), _value_types(section)


def _value_types(section: Cursor) -> int:
    count = section.count()
    for _ in range(count):
        skip_value_type(section)
    return count


def _imports(section: Cursor) -> Iterator[CoreImport]:
    for _ in range(section.count()):
        module, name, kind = section.text(), section.text(), section.byte()
        if kind >= len(_KINDS):
            raise malformed(f"the import before byte {section.at} is of an unknown kind")
        type_index = section.unsigned() if kind == 0 else None
        if kind:
            _skip_import_type(section, kind)
        yield CoreImport(module=module, name=name, kind=_KINDS[kind], type_index=type_index)


def _skip_import_type(section: Cursor, kind: int) -> None:
    if kind in (1, 3):
        skip_value_type(section)
    if kind in (1, 2):
        flags = section.byte()
        section.skip_number()
        if flags & 1:
            section.skip_number()
        if flags & 8:  # a page size of its own
            section.skip_number()
    elif kind == 3:
        section.byte()
    else:
        section.byte()
        section.unsigned()


def _numbers(section: Cursor) -> Iterator[int]:
    return (section.unsigned() for _ in range(section.count()))


def _exported_functions(section: Cursor) -> Iterator[tuple[str, int]]:
    for _ in range(section.count()):
        name, kind, index = section.text(), section.byte(), section.unsigned()
        if kind == 0:
            yield name, index


def _bodies(section: Cursor) -> Iterator[bytes]:
    for _ in range(section.count()):
        yield section.inner(section.unsigned()).rest()
