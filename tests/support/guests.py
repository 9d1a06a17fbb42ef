"""Small guests written in WAT: honest ones, lying ones, and whole components made of them.

A guest that only has to run is a core module with a hand-made interface (`code_of`), which takes a
millisecond.  One whose component matters goes through wit-component (`component_of`).
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from wasmtime import Module, wat2wasm

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.host import EdgeCode, GuestContext, HostEngine, wit
from aos_runtime.host.factors import FACTORS
from aos_runtime.names import CapsuleName, PrincipalName
from aos_runtime.store.kv import KvCase, KvRefused

FS, NET = "astrid:fs/host@1.0.0", "astrid:net/host@1.0.0"
PROCESS_OLD, PROCESS = "astrid:process/host@1.0.0", "astrid:process/host@1.1.0"
HTTP_OLD, HTTP = "astrid:http/host@1.0.0", "astrid:http/host@1.1.0"
APPROVAL, ELICIT = "astrid:approval/host@1.0.0", "astrid:elicit/host@1.0.0"
IDENTITY, UPLINK = "astrid:identity/host@1.0.0", "astrid:uplink/host@1.0.0"
REQUEST_CONTEXT = "astrid:request-context/host@1.0.0"
IPC, KV, SYS = "astrid:ipc/host@1.0.0", "astrid:kv/host@1.0.0", "astrid:sys/host@1.0.0"
IO_ERROR, POLL, STREAMS = "astrid:io/error@1.0.0", "astrid:io/poll@1.0.0", "astrid:io/streams@1.0.0"
PUBLISH_IMPORT = f'(import "{IPC}" "publish" (func $publish (param i32 i32 i32 i32 i32)))'

GUEST = """(module
 %(imports)s
 (memory (export "memory") %(pages)s)
 (global $heap (mut i32) (i32.const 4096))
 (func $realloc (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
  %(realloc)s
  ;; A bump allocator, aligned to what is asked.
  (local.set $p (i32.and
    (i32.add (global.get $heap) (i32.sub (local.get 2) (i32.const 1)))
    (i32.sub (i32.const 0) (local.get 2))))
  (global.set $heap (i32.add (local.get $p) (local.get 3)))
  (block $fits
   (br_if $fits (i32.le_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))))
   (drop (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get 3) (i32.const 16))))))
  (local.get $p))
 (func (export "cabi_post_astrid-hook-trigger") (param i32) %(post)s (global.set $heap (i32.const 4096)))
 (func (export "run"))
 (func (export "astrid-install") %(install)s)
 (func (export "astrid-upgrade"))
 %(more)s
 (func (export "astrid-hook-trigger")
  (param $action i32) (param $action_size i32) (param $payload i32) (param $payload_size i32)
  (result i32) (local $i i32) %(hook)s))"""

CONTINUE = """(i32.store (i32.const 16) (i32.const 64)) (i32.store (i32.const 20) (i32.const 0))
 (i32.store8 (i32.const 24) (i32.const 0)) (i32.const 16)"""
"""Returns the record { action: "", data: none }."""

ECHO = """(i32.store (i32.const 16) (local.get $action)) (i32.store (i32.const 20) (local.get $action_size))
 (i32.store8 (i32.const 24) (i32.const 1)) (i32.store (i32.const 28) (local.get $payload))
 (i32.store (i32.const 32) (local.get $payload_size)) (i32.const 16)"""
"""Returns its own action and payload."""


def publish_call(topic: int, topic_size: int, payload: int, payload_size: int, area: int = 512) -> str:
    """A call of `publish` with exactly these numbers."""
    numbers = (topic, topic_size, payload, payload_size, area)
    return f"(call $publish {' '.join(f'(i32.const {number})' for number in numbers)})"


def guest_text(
    hook: str = CONTINUE,
    *,
    imports: str = PUBLISH_IMPORT,
    realloc: str = "",
    post: str = "",
    install: str = "",
    more: str = "",
    pages: str = "1",
) -> str:
    """The text of a guest whose hook does `hook`."""
    parts = {"imports": imports, "realloc": realloc, "post": post, "install": install, "more": more}
    return GUEST % {**parts, "pages": pages, "hook": hook}


def code_of(
    engine: HostEngine,
    text: str,
    signatures: dict[tuple[str, str], wit.Signature] | None = None,
    implemented: Sequence[str] = ("astrid-install",),
) -> EdgeCode:
    """Code of a core module, its imports taken for the published ones unless `signatures` says otherwise."""
    module = Module(engine.engine, text)
    known = {key: published.signature for key, published in FACTORS.items()} | (signatures or {})
    imports = tuple(
        wit.CoreImport(one.module, one.name or "", known.get((one.module, one.name or "")))
        for one in module.imports
    )
    return EdgeCode(engine, module, wit.Interface(imports, True, tuple(implemented)))


def wasm_tools(arguments: Sequence[str], files: dict[str, str | bytes], *, writes: bool = False) -> bytes:
    """Run wasm-tools on files, whose names follow the arguments; what it printed, or wrote to a file."""
    tools = Path(sysconfig.get_path("scripts")) / "wasm-tools"
    program = str(tools) if tools.exists() else shutil.which("wasm-tools")
    assert program is not None, "wasm-tools is a dependency of this project"
    with tempfile.TemporaryDirectory() as name:
        paths = [Path(name) / file for file in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        made = Path(name) / "made"
        command = [program, *arguments, *map(str, paths), *(["-o", str(made)] if writes else [])]
        run = subprocess.run(command, capture_output=True, check=False, timeout=60)
        assert run.returncode == 0, run.stderr.decode()
        return made.read_bytes() if writes else run.stdout


@functools.cache
def component_of(core_text: str, world: str) -> bytes:
    """A component from a core module and a WIT document with one world, made by wit-component."""
    core = bytes(wat2wasm(core_text))
    embedded = wasm_tools(["component", "embed"], {"world.wit": world, "core.wasm": core}, writes=True)
    return wasm_tools(["component", "new"], {"embedded.wasm": embedded}, writes=True)


def in_component_lane(component: bytes) -> bytes:
    """The same component with one more core module that nothing uses: no longer one for the edge lane."""
    unused = bytes(wat2wasm('(module (func (export "unused")))'))
    assert len(unused) < 0x80, "its size takes one byte"
    return component + bytes((1, len(unused))) + unused


def world_of(*interfaces: str, packages: str = "") -> str:
    """A capsule's world that imports these interfaces, which `packages` defines."""
    imports = "".join(f"  import {interface};\n" for interface in interfaces)
    return f"""package test:guest;

interface lifecycle {{
  record capsule-result {{ action: string, data: option<string> }}
}}

world capsule {{
{imports}  use lifecycle.{{capsule-result}};
  export astrid-hook-trigger: func(action: string, payload: list<u8>) -> capsule-result;
  export run: func();
  export astrid-install: func();
  export astrid-upgrade: func();
}}
{packages}"""


class FakeKv:
    """A space in a dict, with the rules of the interface."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.values.get(_checked(key))

    def set(self, key: str, value: bytes) -> None:
        self.values[_checked(key)] = value

    def delete(self, key: str) -> None:
        self.values.pop(_checked(key), None)

    def list_keys(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(key for key in self.values if key.startswith(prefix)))

    def list_page(self, prefix: str, cursor: str | None, limit: int) -> tuple[tuple[str, ...], str | None]:
        keys = [key for key in self.list_keys(prefix) if cursor is None or key > cursor]
        return tuple(keys[:limit]), keys[limit - 1] if len(keys) > limit else None

    def clear_prefix(self, prefix: str) -> int:
        keys = self.list_keys(prefix)
        for key in keys:
            del self.values[key]
        return len(keys)

    def cas(self, key: str, expected: bytes | None, new: bytes) -> bool:
        if self.values.get(_checked(key)) != expected:
            return False
        self.values[key] = new
        return True


def _checked(key: str) -> str:
    if not key or "\0" in key:
        raise KvRefused(KvCase.INVALID_KEY)
    return key


class FakeInflow:
    """A subscription that gives what it was made with; `closes` counts."""

    def __init__(self, *envelopes: Envelope) -> None:
        self.left = list(envelopes)
        self.is_closed = False
        self.lost = 0
        self.wakes = 0
        self.closes = 0
        self.waits: list[float] = []

    @property
    def has_message(self) -> bool:
        return bool(self.left)

    def poll(self) -> Envelope | None:
        return self.left.pop(0) if self.left else None

    def wait(self, timeout_s: float) -> Envelope | None:
        self.waits.append(timeout_s)
        return self.poll()

    def wake(self) -> None:
        self.wakes += 1

    def close(self) -> None:
        self.closes += 1
        self.is_closed = True


class Recorder:
    """A guest's surroundings: everything it did, in order."""

    def __init__(self) -> None:
        self.kv = FakeKv()
        self.published: list[tuple[str, bytes]] = []
        self.logged: list[tuple[str, str]] = []
        self.answers: Callable[[str, bytes], str | None] = lambda _topic, _payload: None

    def publish(self, topic: str, payload: bytes) -> str | None:
        self.published.append((topic, payload))
        return self.answers(topic, payload)

    def log(self, level: str, message: str) -> None:
        self.logged.append((level, message))

    def context(self, **changes: Any) -> GuestContext:
        """A context with these ports; `changes` replaces fields."""
        fields: dict[str, Any] = {
            "capsule": CapsuleName("guest"),
            "principal": PrincipalName("default"),
            "source_id": "11111111-2222-3333-4444-555555555555",
            "capabilities": Capabilities(),
            "kv": self.kv,
            "publish": self.publish,
            "config": {"city": "Zürich"}.get,
            "log": self.log,
            "now_ms": lambda: 1_785_000_000_123,
            "monotonic_ns": lambda: 42,
            "sleep": lambda _duration_s: True,
        }
        return GuestContext(**(fields | changes))


def envelope_from(principal: str | None) -> Envelope:
    """An invocation by `principal`."""
    return Envelope(
        seq=1,
        topic="tool.v1.execute.x",
        body=b"{}",
        kind=None,
        source_id="99999999-2222-3333-4444-555555555555",
        principal=principal,
        device_key_id=None,
        request_owner=None,
        origin="local_socket",
        workspace=None,
        timestamp_ms=1_785_000_000_123,
    )
