"""Decides what stands behind each import of a capsule, in either lane.

Decided once per component, from names and types alone; the lanes turn the decision into callbacks.  A
published interface must have the shape that was published (case CMP-01); an `astrid:*` function that is not
built answers `unknown`; anything else does not load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wasmtime import FuncType, ImportType, ValType

from aos_runtime.errors import InvalidInput, LimitExceeded
from aos_runtime.host import wit
from aos_runtime.host.boundary import unavailable
from aos_runtime.host.compound_values import FunctionValues
from aos_runtime.host.factors import FACTORS, Factor
from aos_runtime.host.functions import FunctionCodec

MAX_IMPORTS = 1000
"""All published interfaces together have about a hundred functions; each one costs every instance."""

_PUBLISH = ("astrid:ipc/host@1.0.0", "publish")
LOG = ("astrid:sys/host@1.0.0", "log")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One import, in the module's order.

    `kind` is its core type; None marks the import that the edge serves.  No codec: the drop of a resource.
    """

    kind: FuncType | None
    codec: FunctionCodec | None = None
    factor: Factor | None = None
    is_log: bool = False
    drops: str = ""
    """The WIT name of the resource whose drop this is."""
    name: str = ""
    """The function's name in its interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentBinding:
    """One import of a whole component: a function, or, without codec, a resource type."""

    interface: str
    name: str
    codec: FunctionValues | None = None
    factor: Factor | None = None
    is_log: bool = False
    is_publish: bool = False


def check_imports(known: Mapping[tuple[str, str], wit.Signature]) -> None:
    """InvalidInput `import-shape` names the first function of another shape than the published one,
    LimitExceeded `import-too-many` past MAX_IMPORTS.
    """
    if len(known) > MAX_IMPORTS:
        raise LimitExceeded(
            "import-too-many",
            f"the capsule imports {len(known)} functions, and may import {MAX_IMPORTS}",
            hint="build the capsule with a released astrid-sdk",
        )
    for key, signature in known.items():
        published = FACTORS.get(key)
        if published is not None and published.signature != signature:
            raise _misshapen("::".join(key))


def match_imports(
    imports: Sequence[ImportType], known: Mapping[tuple[str, str], wit.Signature]
) -> tuple[wit.CoreImport, ...] | None:
    """Give each import of the core module its interface type; None where one is not what its name says."""
    if len(imports) > MAX_IMPORTS:
        return None
    matched = [_match_import(item, known) for item in imports]
    return tuple(one for one in matched if one is not None) if None not in matched else None


def _match_import(item: ImportType, known: Mapping[tuple[str, str], wit.Signature]) -> wit.CoreImport | None:
    module, name, core = item.module, item.name or "", item.type
    if name.startswith(wit.RESOURCE_DROP) and module.startswith("astrid:"):
        drop = _shape(core) if isinstance(core, FuncType) else None
        return wit.CoreImport(module, name, None) if drop == (("i32",), ()) else None
    signature = known.get((module, name))
    if signature is None or not isinstance(core, FuncType):
        return None
    codec = FunctionCodec(signature)
    if _shape(core) != (codec.core_params, codec.core_results):
        return None
    return wit.CoreImport(module, name, signature)


def component_imports(
    known: Mapping[tuple[str, str], wit.Signature], resources: Sequence[tuple[str, str]]
) -> tuple[wit.CoreImport, ...]:
    """The imports of a whole component: its resource types, then its functions, interface by interface."""
    types = [wit.CoreImport(interface, wit.RESOURCE_DROP + name, None) for interface, name in resources]
    functions = [wit.CoreImport(*key, signature) for key, signature in known.items()]
    return tuple(sorted((*types, *functions), key=lambda one: one.module))


def bind(imports: Sequence[wit.CoreImport]) -> tuple[Binding, ...]:
    """What stands behind each import, in order."""
    return tuple(_bind(item) for item in imports)


def _bind(item: wit.CoreImport) -> Binding:
    if item.signature is None:
        return Binding(kind=_core_type(("i32",), ()), drops=item.name.removeprefix(wit.RESOURCE_DROP))
    key = (item.module, item.name)
    if key == _PUBLISH:
        return Binding(kind=None)
    codec = FunctionCodec(item.signature)
    return Binding(
        kind=_core_type(codec.core_params, codec.core_results),
        codec=codec,
        factor=_factor(item, item.signature),
        is_log=key == LOG,
        name=item.name,
    )


def bind_component(imports: Sequence[wit.CoreImport]) -> tuple[ComponentBinding, ...]:
    """As `bind`, for a whole component."""
    return tuple(_bind_component(item) for item in imports)


def _bind_component(item: wit.CoreImport) -> ComponentBinding:
    if item.signature is None:
        return ComponentBinding(interface=item.module, name=item.name.removeprefix(wit.RESOURCE_DROP))
    key = (item.module, item.name)
    return ComponentBinding(
        interface=item.module,
        name=item.name,
        codec=FunctionValues(item.signature),
        factor=_factor(item, item.signature),
        is_log=key == LOG,
        is_publish=key == _PUBLISH,
    )


def _factor(item: wit.CoreImport, signature: wit.Signature) -> Factor:
    published = FACTORS.get((item.module, item.name))
    return published.run if published is not None else unavailable(item.path, signature.result)


def _core_type(params: Sequence[str], results: Sequence[str]) -> FuncType:
    return FuncType([_VALUE_TYPES[kind]() for kind in params], [_VALUE_TYPES[kind]() for kind in results])


def _shape(kind: FuncType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(map(str, kind.params)), tuple(map(str, kind.results))


def _misshapen(path: str) -> InvalidInput:
    return InvalidInput(
        "import-shape",
        f"the capsule imports `{path}` with another shape than the published one",
        hint="build the capsule with a released astrid-sdk",
        path=path,
    )


_VALUE_TYPES = {"i32": ValType.i32, "i64": ValType.i64, "f32": ValType.f32, "f64": ValType.f64}
