"""Compiled code of one capsule: what all of its instances share.

`compile_component` is where it is decided which lane a component runs in: the edge lane where it is one core
module of the kind that astrid-sdk makes, the component lane otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from wasmtime import FuncType, Module, WasmtimeError
from wasmtime import component as wc

from aos_runtime.capsule.wasm import implemented_exports
from aos_runtime.capsule.wasm_bytes import malformed
from aos_runtime.errors import InvalidInput
from aos_runtime.host import wit
from aos_runtime.host.component import HOOK_EXPORT, Parts, reason_of, take_apart
from aos_runtime.host.engine import HostEngine
from aos_runtime.host.linker import (
    Binding,
    ComponentBinding,
    bind,
    bind_component,
    check_imports,
    component_imports,
    match_imports,
)

POST_RETURN_EXPORT = "cabi_post_" + HOOK_EXPORT
_NEEDED_EXPORTS = ("memory", "cabi_realloc", HOOK_EXPORT)


class EdgeCode:
    """A core module, compiled, and what is known of its component.  Immutable; threads may share it."""

    __slots__ = ("__weakref__", "bindings", "engine", "interface", "module")

    def __init__(self, engine: HostEngine, module: Module, interface: wit.Interface) -> None:
        self.engine = engine
        self.module = module
        self.interface = interface
        self.bindings: tuple[Binding, ...] = bind(interface.imports)

    @property
    def implemented(self) -> frozenset[str]:
        """Which of `run`, `astrid-install`, `astrid-upgrade` the author wrote; the others are stubs."""
        return frozenset(self.interface.implemented)

    def serialize(self) -> bytes:
        """What can be mapped again."""
        return bytes(self.module.serialize())


class ComponentCode:
    """A whole component, compiled, and what is known of it.  Immutable; threads may share it."""

    __slots__ = ("__weakref__", "bindings", "component", "engine", "interface")

    def __init__(self, engine: HostEngine, component: wc.Component, interface: wit.Interface) -> None:
        self.engine = engine
        self.component = component
        self.interface = interface
        self.bindings: tuple[ComponentBinding, ...] = bind_component(interface.imports)

    @property
    def implemented(self) -> frozenset[str]:
        """As of an EdgeCode."""
        return frozenset(self.interface.implemented)

    def serialize(self) -> bytes:
        """What can be mapped again."""
        return bytes(self.component.serialize())


Code: TypeAlias = EdgeCode | ComponentCode
"""What an instance is made of, by its lane."""


def compile_component(engine: HostEngine, component: bytes) -> Code:
    """Validate and compile a component for its lane.  About a millisecond a kilobyte.

    InvalidInput `component-*` or `import-*` for a component that cannot run here, Corrupt
    `wasm-malformed` for bytes that are none.
    """
    parts = take_apart(engine.engine, component)
    check_imports(parts.imports)
    return _compile_for_edge(engine, parts) or _compile_whole(engine, component, parts)


def _compile_for_edge(engine: HostEngine, parts: Parts) -> EdgeCode | None:
    """None where the component does not have the form that the edge lane runs."""
    if parts.core is None:
        return None
    try:
        module = Module(engine.engine, parts.core)
    except WasmtimeError as error:
        raise malformed(reason_of(error)) from error
    exports = {export.name: export.type for export in module.exports}
    imports = match_imports(module.imports, parts.imports)
    if imports is None or any(name not in exports for name in _NEEDED_EXPORTS):
        module.close()
        return None
    interface = wit.Interface(
        imports=imports,
        has_post_return=POST_RETURN_EXPORT in exports,
        implemented=tuple(sorted(implemented_exports(parts.core))),
    )
    _check_lifecycle(exports, interface.implemented)
    return EdgeCode(engine, module, interface)


def _compile_whole(engine: HostEngine, component: bytes, parts: Parts) -> ComponentCode:
    try:
        compiled = wc.Component(engine.engine, component)
    except WasmtimeError as error:
        raise malformed(reason_of(error)) from error
    interface = wit.Interface(
        imports=component_imports(parts.imports, parts.resources),
        has_post_return=False,
        implemented=parts.implemented,
        memory_pages=parts.memory_pages,
    )
    return ComponentCode(engine, compiled, interface)


def _check_lifecycle(exports: Mapping[str, object], names: tuple[str, ...]) -> None:
    """The component may lift another function under a lifecycle name than the module's export of that name.

    Those exports are called without the engine checking a type, and one with another type ends the process.
    """
    for name in names:
        kind = exports.get(name)
        if not isinstance(kind, FuncType) or kind.params or kind.results:
            raise InvalidInput(
                "component-lifecycle",
                f"the capsule's module exports `{name}` with a parameter or a result",
                hint="build the capsule with `aos capsule build`",
                name=name,
            )
