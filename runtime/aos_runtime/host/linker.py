"""Decides what stands behind each import of a capsule's core module.

Decided once per component, from names and types alone; `Instance` turns the decision into callbacks.  A
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
from aos_runtime.host.component import refused_import
from aos_runtime.host.factors import FACTORS, Factor
from aos_runtime.host.functions import FunctionCodec

MAX_IMPORTS = 1000
"""All published interfaces together have about a hundred functions; each one costs every instance."""

_DROP_PREFIX = "[resource-drop]"
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


def match_imports(
    imports: Sequence[ImportType], known: Mapping[tuple[str, str], wit.Signature]
) -> tuple[wit.CoreImport, ...]:
    """Give each import of the core module its interface type.

    InvalidInput `import-wasi`, `import-unknown` or `import-shape` names the first that cannot be served,
    LimitExceeded `import-too-many` past MAX_IMPORTS.
    """
    if len(imports) > MAX_IMPORTS:
        raise LimitExceeded(
            "import-too-many",
            f"the capsule imports {len(imports)} functions, and may import {MAX_IMPORTS}",
            hint="build the capsule with a released astrid-sdk",
        )
    return tuple(_match_import(item, known) for item in imports)


def _match_import(item: ImportType, known: Mapping[tuple[str, str], wit.Signature]) -> wit.CoreImport:
    module, name = item.module, item.name or ""
    if not module.startswith("astrid:"):
        raise refused_import(module, name)
    core = item.type
    if name.startswith(_DROP_PREFIX):
        return wit.CoreImport(module, name, None)
    signature = known.get((module, name))
    if signature is None or not isinstance(core, FuncType):
        raise refused_import(module, name)
    published = FACTORS.get((module, name))
    codec = FunctionCodec(signature)
    if (published is not None and published.signature != signature) or _shape(core) != (
        codec.core_params,
        codec.core_results,
    ):
        raise _misshapen(f"{module}::{name}")
    return wit.CoreImport(module, name, signature)


def bind(imports: Sequence[wit.CoreImport]) -> tuple[Binding, ...]:
    """What stands behind each import, in order."""
    return tuple(_bind(item) for item in imports)


def _bind(item: wit.CoreImport) -> Binding:
    if item.signature is None:
        return Binding(kind=_core_type(("i32",), ()), drops=item.name.removeprefix(_DROP_PREFIX))
    key = (item.module, item.name)
    if key == _PUBLISH:
        return Binding(kind=None)
    codec = FunctionCodec(item.signature)
    published = FACTORS.get(key)
    return Binding(
        kind=_core_type(codec.core_params, codec.core_results),
        codec=codec,
        factor=published.run if published is not None else unavailable(item.path, item.signature.result),
        is_log=key == LOG,
        name=item.name,
    )


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
