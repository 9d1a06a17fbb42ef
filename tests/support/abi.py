"""The whole host ABI as `tests/golden/abi/astrid.wit` has it, read by wasm-tools and by nothing of ours.

`functions` gives every function its signature; a handle in one says which resource it is of.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from aos_runtime.host import wit
from tests.support.guests import wasm_tools

FOLDER = Path(__file__).parents[1] / "golden" / "abi"
ZOO = "astrid:zoo/host@1.0.0"
"""An interface of our own, with every type that there is."""


class NamedHandle(wit.Handle, frozen=True, tag="h", array_like=True):
    """A handle, and the WIT name of its resource."""

    resource: str


class Function(NamedTuple):
    """One function of the ABI."""

    interface: str
    name: str
    signature: wit.Signature

    def __str__(self) -> str:
        return f"{self.interface}::{self.name}"


def packages() -> str:
    """The text of all packages, to follow a world's."""
    return "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("astrid.wit", "zoo.wit"))


def nameless(kind: Any) -> Any:
    """The same type or signature as the host reads it: handles without the name of their resource."""
    match kind:
        case wit.Signature(params, result):
            return wit.Signature(tuple((name, nameless(one)) for name, one in params), nameless(result))
        case wit.Handle():
            return wit.Handle(kind.owned)
        case wit.ListOf(element):
            return wit.ListOf(nameless(element))
        case wit.Record(fields):
            return wit.Record(tuple((name, nameless(one)) for name, one in fields))
        case wit.TupleOf(elements):
            return wit.TupleOf(tuple(nameless(one) for one in elements))
        case wit.Variant(cases):
            return wit.Variant(tuple((name, nameless(one)) for name, one in cases))
        case wit.Option(payload):
            return wit.Option(nameless(payload))
        case wit.Result(ok, err):
            return wit.Result(nameless(ok), nameless(err))
    return kind


@functools.cache
def document() -> dict[str, Any]:
    """What wasm-tools reads out of the file."""
    text = "package test:abi;\n" + packages()
    found: dict[str, Any] = json.loads(wasm_tools(["component", "wit", "--json"], {"abi.wit": text}))
    return found


@functools.cache
def functions() -> tuple[Function, ...]:
    """Every function of the ABI, interface by interface."""
    return tuple(one for one in _everything() if one.interface != ZOO)


@functools.cache
def zoo() -> tuple[Function, ...]:
    """The functions of our own interface."""
    return tuple(one for one in _everything() if one.interface == ZOO)


def _everything() -> tuple[Function, ...]:
    return tuple(
        Function(interface_name(found), name, _signature(one))
        for found in document()["interfaces"]
        for name, one in found["functions"].items()
    )


@functools.cache
def home_of(interface: str, resource: str) -> str:
    """The interface that defines a resource which `interface` names."""
    [found] = [one for one in document()["interfaces"] if interface_name(one) == interface]
    reference = found["types"][resource]
    while document()["types"][reference]["kind"] != "resource":
        reference = document()["types"][reference]["kind"]["type"]
    owner = document()["types"][reference]["owner"]["interface"]
    return interface_name(document()["interfaces"][owner])


def interface_name(interface: dict[str, Any]) -> str:
    """As an import spells it: `astrid:kv/host@1.0.0`."""
    package, version = document()["packages"][interface["package"]]["name"].split("@")
    return f"{package}/{interface['name']}@{version}"


def _signature(function: dict[str, Any]) -> wit.Signature:
    params = tuple((one["name"], _type(one["type"])) for one in function["params"])
    return wit.Signature(params, _optional(function.get("result")))


def _optional(reference: Any) -> wit.Type | None:
    return None if reference is None else _type(reference)


def _type(reference: Any) -> wit.Type:
    if isinstance(reference, str):
        return wit.Primitive(reference)
    kind = document()["types"][reference]["kind"]
    [(form, content)] = kind.items()
    match form:
        case "type":
            return _type(content)
        case "list":
            return wit.ListOf(_type(content))
        case "option":
            return wit.Option(_type(content))
        case "result":
            return wit.Result(_optional(content["ok"]), _optional(content["err"]))
        case "tuple":
            return wit.TupleOf(tuple(_type(one) for one in content["types"]))
        case "record":
            return wit.Record(tuple((one["name"], _type(one["type"])) for one in content["fields"]))
        case "variant":
            return wit.Variant(tuple((one["name"], _optional(one["type"])) for one in content["cases"]))
        case "enum":
            return wit.Enum(tuple(one["name"] for one in content["cases"]))
        case "flags":
            return wit.Flags(tuple(one["name"] for one in content["flags"]))
        case "handle":
            [(ownership, resource)] = content.items()
            return NamedHandle(ownership == "own", _resource_name(resource))
    raise AssertionError(kind)


def _resource_name(reference: int) -> str:
    found = document()["types"][reference]
    if found["kind"] == "resource":
        return str(found["name"])
    return _resource_name(found["kind"]["type"])
