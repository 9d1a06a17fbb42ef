"""Capsules that are made of several core modules, or hold a component: they run like any other."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from wasmtime import wat2wasm

from aos_runtime.errors import AosError, Corrupt, InvalidInput, LimitExceeded
from aos_runtime.host import (
    CodeCache,
    ComponentCode,
    EdgeCode,
    EngineSettings,
    GuestTrap,
    HookResult,
    HostEngine,
    Instance,
)
from aos_runtime.host.code import compile_component
from aos_runtime.names import Digest
from tests.support.guests import Recorder
from tests.support.several_modules import NESTED, TWO_MODULES, UTF_16

FORMS = {"two modules": TWO_MODULES, "nested": NESTED}


@pytest.fixture(params=FORMS, ids=str)
def component(request: pytest.FixtureRequest) -> bytes:
    return bytes(wat2wasm(FORMS[request.param]))


def test_it_runs_and_publishes(engine: HostEngine, component: bytes) -> None:
    recorder = Recorder()
    code = compile_component(engine, component)
    assert isinstance(code, ComponentCode) and code.implemented == {"astrid-install"}
    instance = Instance(code, recorder.context())
    for _ in range(3):
        assert instance.hook(b"act", b'"abcd"') == HookResult("act", b'"ab')
    assert recorder.published == [("topic", b'"abcd"')] * 3
    recorder.answers = lambda _topic, _payload: "unknown:nobody is here"
    assert instance.hook(b"act", b"{}").data is None
    instance.lifecycle("astrid-install")
    assert recorder.published[-1] == ("topic", b"")
    instance.close()


def test_one_module_whose_texts_are_no_utf_8_is_not_for_the_edge(engine: HostEngine) -> None:
    code = compile_component(engine, bytes(wat2wasm(UTF_16)))
    assert isinstance(code, ComponentCode)
    instance = Instance(code, Recorder().context())
    assert instance.hook("größe 🦀".encode(), b"") == HookResult("größe 🦀", None)
    assert isinstance(
        compile_component(engine, bytes(wat2wasm(UTF_16.replace("string-encoding=utf16", "")))), EdgeCode
    )
    instance.close()


def test_its_precompiled_code_is_mapped(engine: HostEngine, component: bytes, tmp_path: Path) -> None:
    digest = Digest(blake3(component).hexdigest())
    compiled = CodeCache(engine, tmp_path, b"c" * 32).precompile(digest, component)
    mapped = CodeCache(engine, tmp_path, b"c" * 32).load(digest, _never)
    assert isinstance(mapped, ComponentCode) and mapped.interface == compiled.interface
    instance = Instance(mapped, Recorder().context())
    assert instance.hook(b"act", b"{}").action == "act"
    instance.close()


@pytest.mark.parametrize("at", [0, 100, -1, -40, -50])
def test_its_precompiled_code_counts_only_whole(
    engine: HostEngine, component: bytes, tmp_path: Path, at: int
) -> None:
    digest = Digest(blake3(component).hexdigest())
    CodeCache(engine, tmp_path, b"c" * 32).precompile(digest, component)
    [path] = tmp_path.glob("*.cwasm")
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    asked: list[bool] = []

    def give() -> bytes:
        asked.append(True)
        return component

    CodeCache(engine, tmp_path, b"c" * 32).load(digest, give)
    assert asked == [True]


@pytest.mark.parametrize(
    ("interface", "refusal"), [("wasi:cli/exit@0.2.0", "import-wasi"), ("evil:corp/host", "import-unknown")]
)
def test_only_astrid_interfaces_are_offered(engine: HostEngine, interface: str, refusal: str) -> None:
    text = TWO_MODULES.replace(
        "(component", f'(component (import "{interface}" (instance (export "steal" (func))))', 1
    )
    with pytest.raises(InvalidInput) as caught:
        compile_component(engine, bytes(wat2wasm(text)))
    assert (caught.value.code, caught.value.context["path"]) == (refusal, f"{interface}::steal")


HOST = '(import "astrid:x/host" (instance (export "f" %s)))'
NEVER_OFFERED = {
    HOST % '(instance (export "f" (func)))': "the capsule imports `astrid:x/host::f`",
    HOST % "(core module)": "the capsule imports `astrid:x/host::f`",
    '(import "beast" (type (sub resource)))': "the capsule imports `beast`",
    '(import "beast" (func))': "the capsule imports `beast`",
    '(import "beast" (core module))': "the capsule imports `beast`",
    '(import "beast" (component))': "root-level component imports are not supported",
    HOST % "(func (result (stream u8)))": "the component model async feature",
    HOST % "(func async)": "the component model async feature",
    HOST % "(func (result (list u8 4)))": "the component model fixed-length lists feature",
}


@pytest.mark.parametrize("item", NEVER_OFFERED)
def test_what_can_never_be_linked_does_not_load_and_says_why(engine: HostEngine, item: str) -> None:
    text = TWO_MODULES.replace("(component", f"(component {item}", 1)
    with pytest.raises((InvalidInput, Corrupt), match=NEVER_OFFERED[item]):
        compile_component(engine, bytes(wat2wasm(text)))


def test_one_with_countless_resource_types_does_not_load(engine: HostEngine) -> None:
    types = "".join(f'(export "r{i}" (type (sub resource)))' for i in range(300))
    text = TWO_MODULES.replace("(component", f'(component (import "astrid:x/host" (instance {types}))', 1)
    with pytest.raises(LimitExceeded) as caught:
        compile_component(engine, bytes(wat2wasm(text)))
    assert caught.value.code == "import-too-many"


def test_one_that_starts_too_large_does_not_start(component: bytes) -> None:
    small = HostEngine(EngineSettings(memory_bytes=1 << 16))
    try:
        with pytest.raises(LimitExceeded) as caught:
            Instance(compile_component(small, component), Recorder().context())
        assert caught.value.code == "instance-too-large"
    finally:
        small.close()


def test_several_memories_share_the_limit(engine: HostEngine) -> None:
    """Two memories in 16 MiB: each may grow to 8 MiB."""
    grow = (
        '(func (export "grow") (if (i32.eq (memory.grow (i32.const 120)) (i32.const -1)) (then unreachable)))'
    )
    text = TWO_MODULES.replace(
        "(core instance $library",
        f"(core module $other (memory 1) {grow}) (core instance $other (instantiate $other))"
        " (core instance $library",
        1,
    ).replace('(canon lift (core func $program "install"))', '(canon lift (core func $other "grow"))')
    code = compile_component(engine, bytes(wat2wasm(text)))
    assert code.interface.memory_pages == (2, 1)
    instance = Instance(code, Recorder().context())
    instance.lifecycle("astrid-install")
    with pytest.raises(GuestTrap):
        instance.lifecycle("astrid-install")


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_one_is_refused_or_runs(engine: HostEngine, component: bytes, data: st.DataObject) -> None:
    damaged = bytearray(component)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(8, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        code = compile_component(engine, bytes(damaged))
    except (InvalidInput, Corrupt):
        return
    with contextlib.suppress(AosError, GuestTrap):
        instance = Instance(code, Recorder().context())
        with contextlib.closing(instance):
            instance.hook(b"act", b"{}", timeout_s=1.0)


def _never() -> bytes:
    raise AssertionError("compiled again")
