"""Loading and activating real components on a real home: what serves, and the reason of what does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from aos_runtime.capsule.manifest import Component
from aos_runtime.errors import Conflict, Corrupt, NotFound, Unavailable
from aos_runtime.home import Home
from aos_runtime.host import CodeCache, HostEngine
from aos_runtime.kernel import hooks, loading
from aos_runtime.kernel.activation import Activation, Activator
from aos_runtime.kernel.audit import HostCall
from aos_runtime.kernel.budget import Budget
from aos_runtime.kernel.kernel import system_cause
from aos_runtime.kernel.loading import Loaded, Loader, Unready, check_component_hash
from aos_runtime.kernel.runloop import EXEMPT_WINDOW_S, WINDOW_S
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.policy.quotas import Quotas
from aos_runtime.store.commit import Approval, commit
from aos_runtime.store.file_tree import FileRefused
from aos_runtime.store.kv import KvStore
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import stage_source
from tests.support.audit_trails import FakeTrail
from tests.support.capsules import make_archive
from tests.support.guests import CONTINUE, component_of, guest_text, world_of
from tests.support.kernels import Bench, env_row, fixed_now, make_installed
from tests.support.tool_guests import archive_of, install, tool_guest, without_bundled

TOOLS = '{"tools":[{"name":"x","description":"Does x","input_schema":{"type":"object"}}]}'
FS_COPY = """
package astrid:fs@1.0.0 {
  interface host {
    variant error-code {
      not-found, access, capability-denied, boundary-escape, invalid-path, would-block, is-directory,
      not-directory, not-empty, too-large, quota, cross-vfs, already-exists, closed, unknown(string),
    }
    fs-copy: func(src: string, dst: string) -> result<_, error-code>;
  }
}
"""
ROW = '"tool.v1.execute.x" = { wit = "opaque", handler = "tool_execute_x" }\n'


@pytest.fixture(scope="module")
def engine() -> Iterator[HostEngine]:
    made = HostEngine()
    yield made
    made.close()


class Room:
    """A home with a loader on it."""

    def __init__(self, folder: Path, engine: HostEngine) -> None:
        self.folder = folder
        self.home = Home(folder / "home")
        without_bundled(self.home)
        self.bench = Bench()
        self.trail = FakeTrail()
        self.state = KvStore(self.home.state_db)
        self.codes = CodeCache(engine, self.home.code_cache, b"k" * 32)
        self.loader = Loader(
            home=self.home,
            codes=self.codes,
            state=self.state,
            bus=self.bench.kernel,
            journal=self.bench.journal,
            before_block=lambda: None,
            trail=self.trail,
        )
        self.activator = Activator(
            codes=self.codes,
            state=self.state,
            journal=self.bench.journal,
            publish=lambda *_: None,
            trail=self.trail,
        )

    def install(self, name: str, wasm: bytes, rows: str = ROW, **options: str) -> None:
        install(self.home, self.folder, name, archive_of(self.home, name, wasm, rows, **options))

    def load(self, name: str) -> Loaded | Unready:
        return self.loader.load(DEFAULT_PRINCIPAL, CapsuleName(name))


@pytest.fixture
def room(tmp_path: Path, engine: HostEngine) -> Iterator[Room]:
    made = Room(tmp_path, engine)
    yield made
    made.state.close()


def unready(loaded: Loaded | Unready) -> Unready:
    assert isinstance(loaded, Unready)
    return loaded


def test_a_capsule_that_is_whole_serves_with_its_tools(room: Room) -> None:
    room.install("good", tool_guest(TOOLS))
    loaded = room.load("good")
    assert isinstance(loaded, Loaded)
    assert [(tool.name, tool.description) for tool in loaded.tools or ()] == [("x", "Does x")]
    assert loaded.warnings == ()
    assert room.bench.heard == []
    loaded.generation.close()


def test_what_a_capsule_is_refused_and_what_it_stores_is_on_record(room: Room) -> None:
    room.install("good", tool_guest(TOOLS))
    loaded = room.load("good")
    assert isinstance(loaded, Loaded)
    context = loaded.generation.context
    assert context.publish("not.v1.mine", b"{}") == "capability-denied"
    assert context.publish("tool.v1.execute.x.result", b"{}") is None
    context.kv.set("key", b"value")
    assert room.trail.calls == [
        HostCall(DEFAULT_PRINCIPAL, "good", "ipc.publish", "not.v1.mine", "capability-denied"),
        HostCall(DEFAULT_PRINCIPAL, "good", "kv.set", None, None),
    ]
    loaded.generation.close()


def test_bus_04_a_tool_without_its_row_is_a_warning(room: Room) -> None:
    room.install("rowless", tool_guest(TOOLS), rows="")
    loaded = room.load("rowless")
    assert isinstance(loaded, Loaded)
    assert loaded.warnings[0].startswith(
        "tool 'x' is described but no [subscribe] row handles tool.v1.execute.x"
    )
    loaded.generation.close()


def test_a_capsule_of_files_only_is_there_and_binds_nothing(room: Room) -> None:
    manifest = f'[package]\nname = "words"\nversion = "1.0.0"\n[subscribe]\n{ROW}'.encode()
    archive = make_archive(wasm=None, files={"Capsule.toml": manifest})
    install(room.home, room.folder, "words", archive, source=ApprovalSource.EXPLICIT)
    loaded = room.load("words")
    assert isinstance(loaded, Loaded)
    assert (loaded.tools, loaded.warnings, loaded.installed.manifest.handlers) == ((), (), ())


def test_what_is_not_installed_is_not_found(room: Room) -> None:
    with pytest.raises(NotFound):
        room.load("absent")


def test_a_flipped_bit_in_the_binary_never_loads(room: Room) -> None:
    room.install("flipped", tool_guest(TOOLS))
    [blob] = room.home.blobs.iterdir()
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    assert unready(room.load("flipped")).state == "failed"


def test_a_capsule_that_needs_another_runtime_does_not_load(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was installed under a runtime that would do; the one that starts now is an older one."""
    room.install("newer", tool_guest(TOOLS), astrid_version=">=2026.1")
    monkeypatch.setattr(loading, "HOST_VERSION", "0.10.4")
    assert unready(room.load("newer")) == Unready(
        name="newer",
        version="0.1.0",
        state="failed",
        reason="capsule newer 0.1.0 needs runtime >=2026.1, this is 0.10.4",
    )


def test_a_capsule_without_a_value_that_it_needs_says_which(room: Room) -> None:
    extra = '\n[env.TOKEN]\ntype = "secret"\n[env.CITY]\ntype = "string"\ndefault = "Bern"\n'
    room.install("unset", tool_guest(TOOLS), extra=extra)
    assert room.load("unset") == Unready(
        name="unset",
        version="0.1.0",
        state="needs-config",
        reason="capsule 'unset' is not configured (TOKEN)",
        missing=(env_row("TOKEN", type="secret"),),
    )


@pytest.mark.parametrize(("limit_mib", "fits"), [(2, True), (1, False)])
def test_an_instance_has_the_memory_that_its_principals_profile_allows(
    room: Room, limit_mib: int, fits: bool
) -> None:
    quotas = Quotas(max_memory_bytes=limit_mib * 1024 * 1024)
    room.loader = Loader(
        home=room.home,
        codes=room.codes,
        state=room.state,
        bus=room.bench.kernel,
        journal=room.bench.journal,
        before_block=lambda: None,
        budget_of=lambda principal: Budget(principal, quotas, is_exempt=False),
    )
    room.install("large", component_of(guest_text(CONTINUE, imports="", pages="20"), world_of()))
    loaded = room.load("large")
    if fits:
        assert isinstance(loaded, Loaded)
        loaded.generation.close()
    else:
        assert "20 pages exceeds memory limits" in unready(loaded).reason


def test_what_a_loaded_capsule_does_with_files_is_gated_and_on_record(room: Room) -> None:
    room.install("reader", tool_guest(TOOLS), extra='\n[capabilities]\nfs_read = ["home://", "cwd://"]\n')
    (room.home.principal(DEFAULT_PRINCIPAL) / "note").write_bytes(b"hello")
    loaded = room.load("reader")
    assert isinstance(loaded, Loaded)
    context = loaded.generation.context
    assert context.files is not None
    assert context.files.read("home://note") == b"hello"
    assert b'name = "reader"' in context.files.read("cwd://Capsule.toml"), "without a workspace: its own"
    workspace = room.folder / "project"
    workspace.mkdir()
    context.current = msgspec.structs.replace(system_cause(DEFAULT_PRINCIPAL), workspace=str(workspace))
    assert context.files.list_names("cwd://") == []
    with pytest.raises(FileRefused, match="capability-denied"):
        context.files.write("cwd://new", b"", append=False)
    assert room.trail.calls == [
        HostCall(DEFAULT_PRINCIPAL, "reader", "fs.read", "home://note", None),
        HostCall(DEFAULT_PRINCIPAL, "reader", "fs.read", "cwd://Capsule.toml", None),
        HostCall(DEFAULT_PRINCIPAL, "reader", "fs.readdir", "cwd://", None),
        HostCall(DEFAULT_PRINCIPAL, "reader", "fs.write", "cwd://new", "capability-denied"),
    ]
    [line] = [line for line in room.bench.journal.lines if "denied" in line[2]]
    assert line[0] == "reader" and 'allow="[capabilities] fs_write = [\\"cwd://new\\"]"' in line[2]
    context.is_loop = True
    assert "Capsule.toml" in context.files.list_names("cwd://"), "a run loop is in nobody's workspace"
    loaded.generation.close()


def test_a_capsule_may_ask_what_others_hold(room: Room) -> None:
    asked: list[tuple[str, str, str]] = []
    room.loader = Loader(
        home=room.home,
        codes=room.codes,
        state=room.state,
        bus=room.bench.kernel,
        journal=room.bench.journal,
        before_block=lambda: None,
        holds=lambda *question: asked.append(question) or True,
    )
    room.install("asking", tool_guest(TOOLS))
    loaded = room.load("asking")
    assert isinstance(loaded, Loaded)
    has_capability = loaded.generation.context.has_capability
    assert has_capability is not None and has_capability("a-uuid", "net")
    assert asked == [(DEFAULT_PRINCIPAL, "a-uuid", "net")]
    loaded.generation.close()


def looping() -> bytes:
    """A component with a run loop, which ends at once."""
    text = guest_text(CONTINUE, imports="").replace(
        '(func (export "run"))', '(func (export "run") (drop (i32.const 1)) (call $more))'
    )
    text = text.replace('(func (export "astrid-upgrade"))', '(func (export "astrid-upgrade")) (func $more)')
    return component_of(text, world_of())


@pytest.mark.parametrize(
    ("capabilities", "window_s"),
    [("", WINDOW_S), ("uplink = true", EXEMPT_WINDOW_S), ('net_bind = ["127.0.0.1:0"]', EXEMPT_WINDOW_S)],
)
def test_the_loop_of_an_uplink_is_not_held_to_the_yield_rule(
    room: Room, monkeypatch: pytest.MonkeyPatch, capabilities: str, window_s: float
) -> None:
    windows: list[float] = []
    monkeypatch.setattr(
        loading.Instance, "run_loop", lambda self, *, window_s, is_stopping: windows.append(window_s)
    )
    room.install("looping", looping(), extra=f"[capabilities]\n{capabilities}\n")
    loaded = room.load("looping")
    assert isinstance(loaded, Loaded)
    loaded.loops[0].start(is_staged=False)
    assert loaded.loops[0].join(5)
    assert windows == [window_s]


def test_a_capsule_with_a_run_loop_is_shown_and_not_faked(room: Room) -> None:
    room.install("looping", looping())
    loaded = room.load("looping")
    assert isinstance(loaded, Loaded) and len(loaded.loops) == 1
    assert loaded.loops[0].start(is_staged=False) == "exited before signaling ready: it ended"
    assert loaded.loops[0].join(5)
    assert loaded.tools == (), "it was asked, beside its loop"


def test_the_hash_in_a_manifest_is_compared() -> None:
    manifest = make_installed("hashed").manifest
    [component] = manifest.components

    def check(text: str) -> None:
        held: Component = replace(component, hash=text)
        check_component_hash(replace(manifest, components=(held,)), b"binary")

    check("sha256:9a3a45d01531a20e89ac6ae10b0b0beb0492acd7216a368aa062d1a5fecaf9cd")
    with pytest.raises(Corrupt, match="its manifest promises blake3"):
        check("blake3:" + "0" * 64)


def hooked(install_body: str) -> bytes:
    text = guest_text(CONTINUE, imports="", install=install_body, more="(func $real)")
    return component_of(text, world_of())


@pytest.mark.parametrize(("body", "hook"), [("(drop (i32.const 1)) (call $real)", "ran"), ("", "skipped")])
def test_an_install_hook_runs_once_for_a_new_version(room: Room, body: str, hook: str) -> None:
    archive = room.folder / "hooked.capsule"
    archive.write_bytes(archive_of(room.home, "hooked", hooked(body), ROW))
    with stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        assert room.activator.activate(stage) == Activation(
            wasm_hash=stage.wasm_digest, phase="install", hook=hook
        )
        commit(stage, approval=Approval(source=ApprovalSource.LOCAL_BUILD), source_text=None)
    with stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        again = room.activator.activate(stage)
    assert (again.phase, again.hook) == ("reinstall", "skipped")


def test_a_hook_that_traps_stops_the_install(room: Room) -> None:
    archive = room.folder / "hooked.capsule"
    archive.write_bytes(archive_of(room.home, "hooked", hooked("(call $real) unreachable"), ROW))
    with (
        stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage,
        pytest.raises(Conflict, match="the astrid-install hook of 'hooked' failed"),
    ):
        room.activator.activate(stage)
    assert [(kept, what["type"], how) for kept, _, what, how in room.trail.entries] == [
        ("require", "capsule_activated", {"status": "success", "details": "admitted"}),
        ("record", "capsule_activated", {"status": "failure", "error": "lifecycle-hook-failed"}),
    ]


def test_a_hook_does_not_run_where_it_cannot_be_put_on_record(room: Room) -> None:
    archive = room.folder / "hooked.capsule"
    archive.write_bytes(archive_of(room.home, "hooked", hooked("(call $real) unreachable"), ROW))
    room.trail.is_full = True
    with (
        stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage,
        pytest.raises(Unavailable, match="nothing was done"),
    ):
        room.activator.activate(stage)
    assert room.trail.entries == []


def test_a_hook_reads_its_own_files_and_writes_where_its_capabilities_say(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = """
     (import "astrid:fs/host@1.0.0" "fs-copy" (func $copy (param i32 i32 i32 i32 i32)))"""
    data = '(data (i32.const 8192) "cwd://Capsule.tomlhome://copycwd://copy")'
    copy = """(call $copy (i32.const 8192) (i32.const 18) (i32.const 8210) (i32.const 11) (i32.const 512))
     (if (i32.load8_u (i32.const 512)) (then unreachable))
     (call $copy (i32.const 8192) (i32.const 18) (i32.const 8221) (i32.const 10) (i32.const 512))
     (if (i32.ne (i32.load8_u (i32.const 516)) (i32.const 2)) (then unreachable))"""
    text = guest_text(CONTINUE, imports=imports, install=copy, more=data)
    wasm = component_of(text, world_of("astrid:fs/host@1.0.0", packages=FS_COPY))
    archive = room.folder / "copying.capsule"
    extra = '\n[capabilities]\nfs_write = ["home://", "cwd://"]\n'
    archive.write_bytes(archive_of(room.home, "copying", wasm, ROW, extra=extra))
    with stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage:
        room.activator.activate(stage)
        manifest = (stage.tree / "Capsule.toml").read_bytes()
        assert sorted(path.name for path in stage.tree.iterdir()) == ["Capsule.toml", "wit"]
    copied = room.home.principal(DEFAULT_PRINCIPAL) / "copy"
    assert copied.read_bytes() == manifest
    monkeypatch.setattr(hooks, "MAX_FILES_BYTES", 4000)
    with (
        stage_source(room.home, DEFAULT_PRINCIPAL, archive, now=fixed_now()) as stage,
        pytest.raises(Conflict, match="the astrid-install hook of 'copying' failed"),
    ):
        room.activator.activate(stage)
    assert room.trail.calls.pop().error == "quota"
    assert [(call.call, call.resource, call.error) for call in room.trail.calls] == [
        ("fs.copy", "cwd://Capsule.toml -> home://copy", None),
        ("fs.copy", "cwd://Capsule.toml -> cwd://copy", "capability-denied"),
    ]
