"""Components taken apart: what loads, what is refused, and in which words."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wasmtime import component as wc
from wasmtime import wat2wasm

from aos_runtime.errors import AosError, Corrupt, InvalidInput, LimitExceeded
from aos_runtime.host import GuestTrap, HostEngine, Instance
from aos_runtime.host.code import compile_component
from aos_runtime.host.component import take_apart
from aos_runtime.host.factors import FACTORS
from aos_runtime.host.linker import MAX_IMPORTS
from tests.support.guests import CONTINUE, ECHO, IPC, KV, Recorder, component_of, guest_text, world_of

ZOO = """
package astrid:zoo@1.0.0 {
  interface host {
    resource beast { constructor(); feed: func(food: list<string>) -> result<u32, error-code>; }
    enum plain-error { no, never }
    flags tastes { sweet, sour }
    record order { name: string, count: u32, tastes: tastes, next: option<u64> }
    variant error-code { not-found, unknown(string) }
    ask: func(order: order) -> result<list<order>, error-code>;
    ask-text: func(a: f64, b: f32, c: char) -> result<u64, string>;
    ask-plain: func() -> result<_, plain-error>;
    ask-nothing: func() -> u64;
  }
}"""
ZOO_IMPORTS = """
 (import "astrid:zoo/host@1.0.0" "ask" (func $ask (param i32 i32 i32 i32 i32 i64 i32)))
 (import "astrid:zoo/host@1.0.0" "ask-text" (func $text (param f64 f32 i32 i32)))
 (import "astrid:zoo/host@1.0.0" "ask-plain" (func $plain (param i32)))
 (import "astrid:zoo/host@1.0.0" "ask-nothing" (func $nothing (result i64)))
 (import "astrid:zoo/host@1.0.0" "[method]beast.feed" (func $feed (param i32 i32 i32 i32)))
 (import "astrid:zoo/host@1.0.0" "[resource-drop]beast" (func $drop (param i32)))"""
RETURN_TEXT = """(i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 0))
 (i32.store8 (i32.const 24) (i32.load8_u (i32.const 512)))
 (i32.store (i32.const 28) (i32.load (i32.const 520))) (i32.store (i32.const 32) (i32.load (i32.const 524)))
 (i32.const 16)"""
"""Returns the text of `unknown`: for these results it lies 8 bytes into the result area."""


def zoo_component(hook: str) -> bytes:
    return component_of(
        guest_text(hook, imports=ZOO_IMPORTS), world_of("astrid:zoo/host@1.0.0", packages=ZOO)
    )


def plain_component(hook: str = ECHO) -> bytes:
    return component_of(guest_text(hook, imports=""), world_of())


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            "(call $ask (i32.const 0) (i32.const 0) (i32.const 3) (i32.const 1) (i32.const 0) (i64.const 0)"
            " (i32.const 512))",
            b"astrid:zoo/host@1.0.0::ask is not available in this runtime",
        ),
        (
            "(call $text (f64.const 1) (f32.const 2) (i32.const 65) (i32.const 512))",
            b"astrid:zoo/host@1.0.0::ask-text is not available in this runtime",
        ),
        (
            "(call $feed (i32.const 7) (i32.const 0) (i32.const 0) (i32.const 512))",
            b"astrid:zoo/host@1.0.0::[method]beast.feed is not available in this runtime",
        ),
    ],
)
def test_an_import_that_is_not_built_answers_unknown(
    engine: HostEngine, instantiate: Callable[..., Instance], call: str, text: bytes
) -> None:
    code = compile_component(engine, zoo_component(call + RETURN_TEXT))
    assert instantiate(code).hook(b"", b"").data == text


@pytest.mark.parametrize("call", ["(call $plain (i32.const 512))", "(drop (call $nothing))"])
def test_an_import_that_cannot_say_unknown_is_a_trap(
    engine: HostEngine, instantiate: Callable[..., Instance], call: str
) -> None:
    instance = instantiate(compile_component(engine, zoo_component(call + CONTINUE)))
    with pytest.raises(GuestTrap, match="is not available in this runtime"):
        instance.hook(b"", b"")


def test_cmp_21_the_drop_of_a_resource_does_nothing(
    engine: HostEngine, instantiate: Callable[..., Instance]
) -> None:
    code = compile_component(engine, zoo_component("(call $drop (i32.const 9))" + CONTINUE))
    assert instantiate(code).hook(b"", b"").action == ""


def test_a_capsule_without_imports_runs(engine: HostEngine, instantiate: Callable[..., Instance]) -> None:
    code = compile_component(engine, plain_component())
    assert code.implemented == frozenset()
    assert instantiate(code).hook(b"act", b"payload").data == b"payload"


def test_what_the_author_wrote_is_known(engine: HostEngine) -> None:
    text = guest_text(ECHO, imports="", install="(drop (memory.grow (i32.const 0)))")
    code = compile_component(engine, component_of(text, world_of()))
    assert code.implemented <= {"astrid-install"}


def test_published_shapes_are_those_that_wit_component_makes(engine: HostEngine) -> None:
    packages = """
package astrid:kv@1.0.0 {
  interface host {
    variant error-code { invalid-key, too-large, quota, cas-mismatch, unknown(string) }
    record key-page { keys: list<string>, next-cursor: option<string> }
    kv-get: func(key: string) -> result<option<list<u8>>, error-code>;
    kv-list-keys-page: func(prefix: string, cursor: option<string>, limit: u32)
      -> result<key-page, error-code>;
  }
}"""
    imports = f"""(import "{KV}" "kv-get" (func (param i32 i32 i32)))
     (import "{KV}" "kv-list-keys-page" (func (param i32 i32 i32 i32 i32 i32 i32)))"""
    component = component_of(guest_text(imports=imports), world_of(KV, packages=packages))
    parts = take_apart(engine.engine, component)
    assert parts.imports == {
        (KV, name): FACTORS[KV, name].signature for name in ("kv-get", "kv-list-keys-page")
    }


def test_cmp_01_a_published_function_of_another_shape_is_refused(engine: HostEngine) -> None:
    packages = (
        "package astrid:ipc@1.0.0 { interface host { publish: func(topic: string, payload: string); } }"
    )
    imports = f'(import "{IPC}" "publish" (func (param i32 i32 i32 i32)))'
    component = component_of(guest_text(imports=imports), world_of(IPC, packages=packages))
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, component)
    assert (caught.value.code, caught.value.message) == (
        "import-shape",
        f"the capsule imports `{IPC}::publish` with another shape than the published one",
    )


@pytest.mark.parametrize(
    ("package", "code"), [("wasi:cli@0.2.0", "import-wasi"), ("evil:corp@1.0.0", "import-unknown")]
)
def test_only_astrid_interfaces_are_offered(engine: HostEngine, package: str, code: str) -> None:
    name, version = package.split("@")
    interface = f"{name}/host@{version}"
    packages = f"package {package} {{ interface host {{ steal: func(); }} }}"
    component = component_of(
        guest_text(imports=f'(import "{interface}" "steal" (func))'), world_of(interface, packages=packages)
    )
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, component)
    assert (caught.value.code, caught.value.context["path"]) == (code, f"{interface}::steal")


def test_a_component_without_the_hook_is_refused(engine: HostEngine) -> None:
    core = '(module (memory (export "memory") 1) (func (export "go")))'
    component = component_of(core, "package a:b; world w { export go: func(); }")
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, component)
    assert caught.value.code == "component-no-hook"


def test_a_hook_that_answers_with_bytes_is_refused(engine: HostEngine) -> None:
    """The form of before the WIT had a record: a first byte 0, 1 or 2, then the payload."""
    world = world_of().replace("-> capsule-result;", "-> list<u8>;")
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, component_of(guest_text(CONTINUE, imports=""), world))
    assert caught.value.code == "component-no-hook"


def test_what_is_no_capsule_is_refused_in_either_lane(engine: HostEngine) -> None:
    component = wat2wasm('(component (core module (func (export "a"))) (core module (func (export "b"))))')
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, bytes(component))
    assert caught.value.code == "component-no-hook"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0asm",
        b"\0asm\x01\0\0\0",
        b"(module)",
        b"\x7fELF",
        b"\0asm\x0d\0\x01\0\x01\xff\xff\xff\xff\x0f",
    ],
)
def test_cmp_10_what_is_no_component_is_malformed(engine: HostEngine, data: bytes) -> None:
    with pytest.raises(AosError):
        compile_component(engine, data)


def test_the_hollow_component_has_the_imports_of_the_whole(engine: HostEngine) -> None:
    component = zoo_component(CONTINUE)
    whole = wc.Component(engine.engine, component).type.imports(engine.engine)
    names = {
        (interface, name)
        for interface, extern in whole.items()
        if isinstance(item := extern.ty, wc.ComponentInstanceType)
        for name, member in item.exports(engine.engine).items()
        if isinstance(member.ty, wc.FuncType)
    }
    assert set(take_apart(engine.engine, component).imports) == names


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_damaged_component_is_refused_or_runs(engine: HostEngine, data: st.DataObject) -> None:
    whole = bytearray(plain_component())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(len(whole) // 2, len(whole)))])
    try:
        code = compile_component(engine, damaged)
    except (InvalidInput, Corrupt):
        return
    with contextlib.suppress(AosError, GuestTrap):
        Instance(code, Recorder().context()).close()


@pytest.mark.parametrize(
    "lie", ["(param i64) (drop (local.get 0))", "(result i64 i64) (i64.const 1) (i64.const 1)"]
)
def test_a_lifecycle_export_of_another_type_than_the_lifted_one_does_not_load(
    lie: str, engine: HostEngine
) -> None:
    """Called unchecked, it would end the whole process."""
    more = f'(func (export "other-function") {lie})'
    honest = component_of(guest_text(imports="", install="nop", more=more), world_of())
    start, exported, aliased, rest = honest.split(b"astrid-install", 3)
    assert exported.count(b"other-function") == 1
    exported = exported.replace(b"other-function", b"astrid-install")
    component = b"other-function".join((start, exported, aliased)) + b"astrid-install" + rest
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, component)
    assert caught.value.code == "component-lifecycle"


def test_a_component_with_countless_imports_does_not_load(engine: HostEngine) -> None:
    count = MAX_IMPORTS + 1
    functions = "".join(f"ask{i}: func();" for i in range(count))
    packages = f"package astrid:many@1.0.0 {{ interface host {{ {functions} }} }}"
    imports = "".join(f'(import "astrid:many/host@1.0.0" "ask{i}" (func))' for i in range(count))
    component = component_of(
        guest_text(imports=imports), world_of("astrid:many/host@1.0.0", packages=packages)
    )
    with pytest.raises(LimitExceeded) as caught:
        compile_component(engine, component)
    assert caught.value.code == "import-too-many"
