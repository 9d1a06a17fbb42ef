"""A guest that makes one host call again and again, and its surroundings: real ports over a folder.

Everything that a call passes through in a daemon is here: the codecs and the door of the edge lane, gate,
walk, audit trail, trace and state file.  Only the leader is missing: nobody else waits for the thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from wasmtime import Module

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.capability import Capabilities
from aos_runtime.config import Settings
from aos_runtime.daemon.audit import open_trail
from aos_runtime.home import Home
from aos_runtime.host import EdgeCode, EngineSettings, GuestContext, HostEngine, Instance, wit
from aos_runtime.host.factors import FACTORS
from aos_runtime.kernel.audit import AuditTrail
from aos_runtime.kernel.audited import AuditedSpace, note_calls
from aos_runtime.kernel.files import FileRoots, GuestFiles, gates_of
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.trace import Recorder
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.network import Dialer, NetworkDoor
from aos_runtime.policy.egress import Airlock
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.kv import KvStore
from aos_runtime.store.layout import open_home
from bench.payload_web import web_server

CAPSULE = CapsuleName("payload")
FILE, KEY = "payload", "payload"
MAX_BYTES = 10 * 1000 * 1000
_FS, _KV, _HTTP = "astrid:fs/host@1.0.0", "astrid:kv/host@1.0.0", "astrid:http/host@1.1.0"
_ROOM = (MAX_BYTES + 0xFFFF) // 0x10000 * 0x10000
_SOURCE = 1 << 16
"""Where the guest keeps what it writes in turns: zeros, and ones behind them.  Were it always the same, the
database would see that nothing changes and write nothing."""
_OTHER = _SOURCE + _ROOM
_HEAP = _OTHER + _ROOM
"""Where it receives what it reads: the same place for every call."""
_ORDER = struct.Struct("<III")
_TEXT = f"""(module
 (import "{_FS}" "read-file" (func $read (param i32 i32 i32)))
 (import "{_FS}" "write-file" (func $write (param i32 i32 i32 i32 i32)))
 (import "{_KV}" "kv-get" (func $get (param i32 i32 i32)))
 (import "{_KV}" "kv-set" (func $set (param i32 i32 i32 i32 i32)))
 (import "{_KV}" "kv-cas" (func $cas (param i32 i32 i32 i32 i32 i32 i32 i32)))
 (import "{_HTTP}" "http-request" (func $request
  (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))
 (memory (export "memory") {_HEAP >> 16})
 (data (i32.const 1024) "cwd://{FILE}{KEY}")
 (global $heap (mut i32) (i32.const {_HEAP}))
 (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $p i32)
  (local.set $p (global.get $heap))
  (global.set $heap (i32.and (i32.add (i32.add (local.get $p) (local.get 3)) (i32.const 15)) (i32.const -16)))
  (block $fits
   (br_if $fits (i32.le_u (global.get $heap) (i32.shl (memory.size) (i32.const 16))))
   (drop (memory.grow (i32.add (i32.const 1) (i32.shr_u (local.get 3) (i32.const 16))))))
  (local.get $p))
 (func (export "cabi_post_astrid-hook-trigger") (param i32) (global.set $heap (i32.const {_HEAP})))
 (func (export "run")) (func (export "astrid-install")) (func (export "astrid-upgrade"))
 (func (export "astrid-hook-trigger")
  (param $action i32) (param $action_size i32) (param $order i32) (param $order_size i32) (result i32)
  (local $what i32) (local $times i32) (local $size i32) (local $now i32) (local $next i32) (local $base i32)
  (local.set $base (global.get $heap))
  (if (i32.eqz (i32.load8_u (i32.const {_OTHER})))
   (then (memory.fill (i32.const {_OTHER}) (i32.const 1) (i32.const {MAX_BYTES}))))
  (local.set $now (i32.const {_SOURCE})) (local.set $next (i32.const {_OTHER}))
  (local.set $what (i32.load align=1 (local.get $order)))
  (local.set $times (i32.load offset=4 align=1 (local.get $order)))
  (local.set $size (i32.load offset=8 align=1 (local.get $order)))
  (i32.store8 (i32.const 512) (i32.const 0))
  (block $done (loop $again
   (br_if $done (i32.eqz (local.get $times)))
   (global.set $heap (local.get $base))
   (if (i32.eq (local.get $what) (i32.const 0))
    (then (call $read (i32.const 1024) (i32.const 13) (i32.const 512))))
   (if (i32.eq (local.get $what) (i32.const 1))
    (then (call $write (i32.const 1024) (i32.const 13) (local.get $next) (local.get $size) (i32.const 512))))
   (if (i32.eq (local.get $what) (i32.const 2))
    (then (call $get (i32.const 1037) (i32.const 7) (i32.const 512))))
   (if (i32.eq (local.get $what) (i32.const 3))
    (then (call $set (i32.const 1037) (i32.const 7) (local.get $next) (local.get $size) (i32.const 512))))
   (if (i32.eq (local.get $what) (i32.const 4))
    (then (call $cas (i32.const 1037) (i32.const 7) (i32.const 1) (local.get $now) (local.get $size)
     (local.get $next) (local.get $size) (i32.const 512))))
   (if (i32.ge_u (local.get $what) (i32.const 5))  ;; the address stands behind the order
    (then (call $request (i32.add (local.get $order) (i32.const 12))
     (i32.sub (local.get $order_size) (i32.const 12))
     (select (i32.const 3) (i32.const 0) (i32.eq (local.get $what) (i32.const 6)))  ;; put or get
     (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0)
     (i32.eq (local.get $what) (i32.const 6)) (local.get $next) (local.get $size) (i32.const 512))))
   (br_if $done (i32.load8_u (i32.const 512)))
   (local.set $times (i32.sub (local.get $times) (i32.const 1)))
   (local.get $now) (local.set $now (local.get $next)) (local.set $next)
   (br $again)))
  ;; the result: no action, and how many calls were not made
  (i32.store (i32.const 64) (local.get $times))
  (i32.store (i32.const 16) (i32.const 64)) (i32.store (i32.const 20) (i32.const 0))
  (i32.store8 (i32.const 24) (i32.ne (local.get $times) (i32.const 0)))
  (i32.store (i32.const 28) (i32.const 64)) (i32.store (i32.const 32) (i32.const 0))
  (i32.const 16)))"""
READ, WRITE, GET, SET, CAS, FETCH, SEND = range(7)


class Caller(NamedTuple):
    """The guest, and the folder and state file that its calls reach."""

    instance: Instance
    folder: Path
    state: KvStore
    web_port: int
    space = f"{DEFAULT_PRINCIPAL}:capsule:{CAPSULE}".encode()

    def call(self, what: int, times: int, size: int) -> None:
        """Make the call so many times, an even number to leave what was there.  RuntimeError where one was
        refused.
        """
        url = f"http://127.0.0.1:{self.web_port}/{size if what == FETCH else ''}"
        result = self.instance.hook(b"x", _ORDER.pack(what, times, size) + url.encode())
        if result.data is not None:
            raise RuntimeError(f"call {what} of {size} bytes was refused")


@contextmanager
def caller(root: Path) -> Iterator[Caller]:
    """A guest in `root`, which is empty at first."""
    home, folder = Home(root / "home"), root / "project"
    folder.mkdir(parents=True)
    open_home(home, create=True)
    trail = open_trail(home, load_runtime_seed(home, create=True), Settings(), lambda _level, _text: None)
    engine = HostEngine(EngineSettings(memory_bytes=1 << 26))
    state = KvStore(home.state_db)
    try:
        code = EdgeCode(engine, Module(engine.engine, _TEXT), wit.Interface(_imports(engine), True, ()))
        context = _context(home, folder.resolve(), trail, state)
        with web_server() as port:
            context.network = _network(port, trail)
            instance = Instance(code, context)
            yield Caller(instance, folder, state, port)
            instance.close()
    finally:
        state.close()
        engine.close()
        trail.close()


def _imports(engine: HostEngine) -> tuple[wit.CoreImport, ...]:
    names = [(one.module, one.name or "") for one in Module(engine.engine, _TEXT).imports]
    return tuple(wit.CoreImport(module, name, FACTORS[module, name].signature) for module, name in names)


def _context(home: Home, folder: Path, trail: AuditTrail, state: KvStore) -> GuestContext:
    """What `kernel.loading` gives a capsule that may read and write its workspace."""
    capabilities = Capabilities(fs_read=("cwd://",), fs_write=("cwd://",))
    trace = Recorder()
    context = GuestContext(
        capsule=CAPSULE,
        principal=DEFAULT_PRINCIPAL,
        source_id="11111111-2222-3333-4444-555555555555",
        capabilities=capabilities,
        kv=AuditedSpace(state.space(DEFAULT_PRINCIPAL, CAPSULE), trail, DEFAULT_PRINCIPAL, CAPSULE),
        publish=lambda _topic, _payload: None,
        config=lambda _key: None,
        log=lambda _level, _text: None,
        observe=lambda name, started, refusal: trace.called(
            started, 1, DEFAULT_PRINCIPAL, CAPSULE, name, refusal
        ),
        current=_invocation(folder),
    )
    roots = FileRoots(
        home=home.principal(DEFAULT_PRINCIPAL),
        scratch=home.scratch(DEFAULT_PRINCIPAL),
        own=folder,
        workspace=lambda: None if context.current is None else context.current.workspace,
    )
    note = note_calls(trail, DEFAULT_PRINCIPAL, CAPSULE)
    context.files = GuestFiles(roots, gates_of(capabilities), note=note, denied=lambda _denial: None)
    return context


def _network(port: int, trail: AuditTrail) -> NetworkDoor:
    """A door to the one server, as the operator would exempt it."""
    return NetworkDoor(
        airlock=Airlock(CAPSULE, Capabilities(net=("127.0.0.1",)), (f"127.0.0.1:{port}",)),
        dialer=Dialer(),
        denied=lambda _denial: None,
        note=note_calls(trail, DEFAULT_PRINCIPAL, CAPSULE),
        secret=lambda _name: None,
    )


def _invocation(folder: Path) -> Envelope:
    return msgspec.structs.replace(system_cause(DEFAULT_PRINCIPAL), workspace=str(folder))
