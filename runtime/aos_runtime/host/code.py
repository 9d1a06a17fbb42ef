"""Compiled code of one capsule: what all of its instances share."""

from __future__ import annotations

from collections.abc import Mapping

from wasmtime import FuncType, Module, WasmtimeError

from aos_runtime.capsule.wasm import implemented_exports
from aos_runtime.capsule.wasm_bytes import malformed
from aos_runtime.errors import InvalidInput
from aos_runtime.host import wit
from aos_runtime.host.component import HOOK_EXPORT, take_apart
from aos_runtime.host.engine import HostEngine
from aos_runtime.host.linker import Binding, bind, match_imports

POST_RETURN_EXPORT = "cabi_post_" + HOOK_EXPORT
_NEEDED_EXPORTS = ("memory", "cabi_realloc", HOOK_EXPORT)


class Code:
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


def compile_component(engine: HostEngine, component: bytes) -> Code:
    """Validate and compile a component.  About a millisecond a kilobyte.

    InvalidInput `component-*` or `import-*` for a component that cannot run here, Corrupt
    `wasm-malformed` for bytes that are none.
    """
    parts = take_apart(engine.engine, component)
    try:
        module = Module(engine.engine, parts.core)
    except WasmtimeError as error:
        raise malformed(str(error).strip().splitlines()[0][:300]) from error
    exports = {export.name: export.type for export in module.exports}
    for name in _NEEDED_EXPORTS:
        if name not in exports:
            raise InvalidInput(
                "component-export-missing",
                f"the capsule's module does not export `{name}`",
                hint="build the capsule with `aos capsule build`",
                name=name,
            )
    interface = wit.Interface(
        imports=match_imports(module.imports, parts.imports),
        has_post_return=POST_RETURN_EXPORT in exports,
        implemented=tuple(sorted(implemented_exports(parts.core))),
    )
    _check_lifecycle(exports, interface.implemented)
    return Code(engine, module, interface)


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
