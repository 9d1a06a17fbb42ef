"""Reads interface types out of wasmtime's view of a component, as `wit` values.

Types only; values are never converted by the binding's own code, which is slow and keeps process-wide state.
"""

from __future__ import annotations

from wasmtime import component as wc

from aos_runtime.errors import InvalidInput
from aos_runtime.host import wit

_PRIMITIVES: dict[type, str] = {
    wc.Bool: "bool",
    wc.S8: "s8",
    wc.S16: "s16",
    wc.S32: "s32",
    wc.S64: "s64",
    wc.U8: "u8",
    wc.U16: "u16",
    wc.U32: "u32",
    wc.U64: "u64",
    wc.F32: "f32",
    wc.F64: "f64",
    wc.Char: "char",
    wc.String: "string",
}
MAX_FLAGS = 32


def read_signature(kind: wc.FuncType, budget: wit.TypeBudget) -> wit.Signature:
    """A function's parameters and result.  InvalidInput `component-type` for what a capsule may not use."""
    params = tuple((name, read_type(param, budget)) for name, param in kind.params)
    return wit.Signature(params, _read_payload(kind.result, budget))


def read_type(kind: wc.ValType, budget: wit.TypeBudget) -> wit.Type:
    """One type, unfolded."""
    if not budget.take():
        raise _refused("its types are too large")
    primitive = _PRIMITIVES.get(type(kind))
    if primitive is not None:
        return wit.Primitive(primitive)
    if isinstance(kind, wc.ListType):
        return wit.ListOf(read_type(kind.element, budget))
    if isinstance(kind, wc.RecordType):
        return wit.Record(tuple((name, read_type(field, budget)) for name, field in kind.fields))
    if isinstance(kind, wc.TupleType):
        return wit.TupleOf(tuple(read_type(element, budget) for element in kind.elements))
    return _read_choice(kind, budget)


def _read_choice(kind: wc.ValType, budget: wit.TypeBudget) -> wit.Type:
    if isinstance(kind, wc.VariantType):
        return wit.Variant(tuple((name, _read_payload(case, budget)) for name, case in kind.cases))
    if isinstance(kind, wc.EnumType):
        return wit.Enum(tuple(kind.names))
    if isinstance(kind, wc.OptionType):
        return wit.Option(read_type(kind.payload, budget))
    if isinstance(kind, wc.ResultType):
        return wit.Result(_read_payload(kind.ok, budget), _read_payload(kind.err, budget))
    if isinstance(kind, wc.FlagsType) and len(kind.names) <= MAX_FLAGS:
        return wit.Flags(tuple(kind.names))
    if isinstance(kind, wc.OwnType | wc.BorrowType):
        return wit.Handle(isinstance(kind, wc.OwnType))
    raise _refused(f"it uses a type that no capsule interface has: {type(kind).__name__}")


def _read_payload(kind: wc.ValType | None, budget: wit.TypeBudget) -> wit.Type | None:
    return None if kind is None else read_type(kind, budget)


def _refused(why: str) -> InvalidInput:
    return InvalidInput(
        "component-type",
        f"the component cannot run here: {why}",
        hint="build the capsule with `aos capsule build`",
    )
