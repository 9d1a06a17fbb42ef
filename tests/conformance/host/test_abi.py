"""Every function of the ABI, every arm of its result, in both lanes: what crosses arrives as it was.

The functions come from the published WIT and not from what is built here, so one that is built later is
already covered.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable

import pytest

from aos_runtime.host import Err, wit
from aos_runtime.host.factors import FACTORS
from tests.support import abi
from tests.support.abi import Function
from tests.support.relay import LANES, PUBLISH, Outcome, Relay
from tests.support.wit_values import arms, value_of

FUNCTIONS = abi.functions()
OLDER = ("astrid:http/host@1.0.0", "astrid:process/host@1.0.0")


def arguments_of(function: Function, random_: random.Random) -> tuple[object, ...]:
    return tuple(value_of(kind, random_) for _, kind in function.signature.params)


def test_the_abi_is_whole() -> None:
    """167 functions, and those of the older versions of http and process beside them."""
    assert len([one for one in FUNCTIONS if one.interface not in OLDER]) == 167
    assert len(FUNCTIONS) == 202


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("function", FUNCTIONS + abi.zoo(), ids=str)
def test_every_arm_crosses_unchanged(function: Function, lane: str, relay: Callable[..., Relay]) -> None:
    guest, random_ = relay(function.interface, lane), random.Random(str(function))
    for arm in arms(function.signature.result, random_):
        arguments = arguments_of(function, random_)
        assert guest.call(function, arguments, arm) == Outcome(arguments, arm)
    assert guest.instance is not None and guest.instance.context.resources.leaked == 0


def unbuilt_answer(function: Function) -> Outcome:
    """`unknown(text)` where the result can say it, a trap where it cannot."""
    text = f"{function} is not available in this runtime"
    match function.signature.result:
        case wit.Result(_, wit.Variant(cases)) if ("unknown", wit.STRING) in cases:
            return Outcome(None, Err("unknown", text))
        case wit.Result(_, wit.Primitive("string")):
            return Outcome(None, Err(None, text))
    return Outcome(None, None, f"trap: {text}")


SERVED_BY_THE_EDGE = [one for one in FUNCTIONS if (one.interface, one.name) == PUBLISH]


@pytest.mark.parametrize(
    ("function", "lane"),
    [(one, lane) for one in FUNCTIONS for lane in LANES if lane != "edge" or one not in SERVED_BY_THE_EDGE],
    ids=str,
)
def test_a_function_that_is_not_built_says_so(
    function: Function, lane: str, relay: Callable[..., Relay]
) -> None:
    guest, random_ = relay(function.interface, lane, is_built=False), random.Random(str(function))
    assert guest.call(function, arguments_of(function, random_), None) == unbuilt_answer(function)


ROOMS = {
    **{
        f"astrid:{name}/host@1.0.0": name
        for name in ("approval", "elicit", "fs", "identity", "ipc", "kv", "net")
    },
    **{f"astrid:io/{name}@1.0.0": "io" for name in ("error", "poll", "streams")},
    **{f"astrid:{name}/host@1.0.0": name for name in ("http", "process", "sys", "uplink")},
    **{f"astrid:{name}/host@1.1.0": name for name in ("http", "process")},
    "astrid:request-context/host@1.0.0": "request_context",
}
"""The module of `host.factors` that each interface is in."""


def test_every_function_has_a_factor_where_it_belongs() -> None:
    """Walks the whole WIT; what is not there would answer `unknown` to every capsule."""
    modules = {room: importlib.import_module(f"aos_runtime.host.factors.{room}") for room in ROOMS.values()}
    tables = {
        room: [value for value in vars(module).values() if isinstance(value, dict)]
        for room, module in modules.items()
    }
    astray = [
        str(one)
        for one in FUNCTIONS
        if not any(
            table.get(one.name) is FACTORS.get((one.interface, one.name), one)
            for table in tables[ROOMS[one.interface]]
        )
    ]
    assert astray == []
    assert {interface for interface, _ in FACTORS} == set(ROOMS)


@pytest.mark.parametrize("key", FACTORS, ids="::".join)
def test_what_is_built_has_the_published_shape(key: tuple[str, str]) -> None:
    [function] = [one for one in FUNCTIONS if (one.interface, one.name) == key]
    assert FACTORS[key].signature == abi.nameless(function.signature)
