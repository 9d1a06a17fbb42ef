"""What the crash driver interrupts: each scenario prepares a home, changes it, and says what may be found
after a kill.

`act` runs in a process that is killed at some step of it; `check` runs in a fresh one and raises
AssertionError.  Each check first looks as a reader would, then lets the next writer sweep and repeat the act,
and looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aos_runtime.errors import NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from aos_runtime.store.audit import AuditStore, Retention
from aos_runtime.store.audit_reader import read_audit
from aos_runtime.store.audit_verify import verify
from aos_runtime.store.commit import Approval, change_env, commit, remove_installed, sweep
from aos_runtime.store.env import NO_CHANGES, EnvChanges, read_env, read_secrets
from aos_runtime.store.installed import Installed, list_installed, load_installed
from aos_runtime.store.keys import load_runtime_seed, principal_seed, public_hex
from aos_runtime.store.kv import KvSpace, KvStore
from aos_runtime.store.layout import open_home
from aos_runtime.store.log_reader import read_records
from aos_runtime.store.logs import LogSink
from aos_runtime.store.names_index import rebuild, record_tools
from aos_runtime.store.principals import ensure_default
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.run import Liveness, RunFiles, liveness
from aos_runtime.store.stage import stage_source
from tests.support.audit_trails import draft
from tests.support.capsules import COMPONENT, make_archive, write_capsule

NAME = CapsuleName("demo")
NOW = datetime(2026, 8, 1, 10, tzinfo=UTC)
OLD_ENV = EnvChanges(values={EnvKey("REGION"): "eu"}, secrets={EnvKey("TOKEN"): "old"})
NEW_ENV = EnvChanges(
    values={EnvKey("REGION"): "us"}, secrets={EnvKey("TOKEN"): "new", EnvKey("EXTRA"): "more"}
)
OTHER_COMPONENT = COMPONENT + b"\0\x04\x03abc"
KV_ROUNDS = 12
LOG_LINES = 6
AUDIT_ROUNDS, AUDIT_BATCH, AUDIT_KEPT = 5, 4, 12

Facts = dict[str, object]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One thing to interrupt.  `seen` are the facts that `act` reported before it was killed."""

    name: str
    prepare: Callable[[Home], None]
    act: Callable[[Home, Callable[[str], None]], None]
    check: Callable[[Home, tuple[str, ...]], None]


def _install(home: Home, version: str, env: EnvChanges = NO_CHANGES) -> None:
    wasm = COMPONENT if version == "0.1.0" else OTHER_COMPONENT
    data = make_archive("demo", version, wasm=wasm, files={"assets/version.txt": version.encode()})
    source = write_capsule(home.root.parent / "sources" / f"demo-{version}.capsule", data)
    with stage_source(home, DEFAULT_PRINCIPAL, source, now=NOW, catalogue=()) as stage:
        commit(stage, approval=Approval(source=ApprovalSource.EXPLICIT), env=env, source_text=str(source))


def _state(home: Home) -> Facts:
    """The installed version, checked to the last byte, with its env; version None where none is installed."""
    found = list_installed(home, DEFAULT_PRINCIPAL)
    assert len(found) <= 1, found
    version: str | None = None
    if found:
        assert isinstance(found[0], Installed), found
        installed, wasm = load_installed(home, DEFAULT_PRINCIPAL, NAME)
        version = installed.version
        assert wasm == (COMPONENT if version == "0.1.0" else OTHER_COMPONENT)
        assert (installed.generation / "assets" / "version.txt").read_text() == version
        assert installed.meta.version == version
    env = read_env(home, DEFAULT_PRINCIPAL, NAME)
    return {"version": version, "env": env, "secrets": read_secrets(home, DEFAULT_PRINCIPAL, NAME)}


def _expect(version: str | None, env: EnvChanges) -> Facts:
    values = {**dict.fromkeys(env.secrets, ""), **env.values}
    return {"version": version, "env": values, "secrets": dict(env.secrets)}


def _check_swept(home: Home) -> None:
    """Nothing of a killed writer is left once the next one has swept."""
    rebuild(home)
    sweep(home)
    assert not list(home.staging.iterdir() if home.staging.exists() else ()), "a staging folder is left"
    left = [str(path) for path in home.state.rglob("*.tmp")]
    assert not left, left
    pointer = home.capsule(DEFAULT_PRINCIPAL, NAME)
    live = [pointer.resolve()] if pointer.is_symlink() else []
    folder = home.generations(DEFAULT_PRINCIPAL, NAME)
    assert (list(folder.iterdir()) if folder.exists() else []) == live
    receipts = home.receipts(DEFAULT_PRINCIPAL, NAME)
    assert len(list(receipts.iterdir()) if receipts.exists() else []) == len(live)


def _check_change(home: Home, old: Facts, new: Facts, again: Callable[[], None]) -> None:
    assert _state(home)["version"] in (old["version"], new["version"])
    sweep(home)
    state = _state(home)
    assert state in (old, new), state
    _check_swept(home)
    again()
    assert _state(home) == new
    _check_swept(home)


def _upgrade() -> Scenario:
    return Scenario(
        "upgrade",
        lambda home: _install(home, "0.1.0", OLD_ENV),
        lambda home, _: _install(home, "0.2.0", NEW_ENV),
        lambda home, _: _check_change(
            home,
            _expect("0.1.0", OLD_ENV),
            _expect("0.2.0", NEW_ENV),
            lambda: _install(home, "0.2.0", NEW_ENV),
        ),
    )


def _first_install() -> Scenario:
    return Scenario(
        "install",
        lambda home: load_runtime_seed(home, create=True) and None,
        lambda home, _: _install(home, "0.1.0", OLD_ENV),
        lambda home, _: _check_change(
            home,
            _expect(None, NO_CHANGES),
            _expect("0.1.0", OLD_ENV),
            lambda: _install(home, "0.1.0", OLD_ENV),
        ),
    )


def _reinstall_over_damage() -> Scenario:
    def prepare(home: Home) -> None:
        _install(home, "0.1.0", OLD_ENV)
        for blob in home.blobs.glob("*.wasm"):
            blob.write_bytes(b"garbage")

    def check(home: Home, _: tuple[str, ...]) -> None:
        sweep(home)
        _install(home, "0.1.0")
        assert _state(home) == _expect("0.1.0", OLD_ENV)
        _check_swept(home)

    return Scenario("repair", prepare, lambda home, _: _install(home, "0.1.0"), check)


def _remove() -> Scenario:
    def purge(home: Home) -> None:
        try:
            remove_installed(home, DEFAULT_PRINCIPAL, NAME, purge=True)
        except NotFound:
            return

    def check(home: Home, _: tuple[str, ...]) -> None:
        assert _state(home)["version"] in ("0.1.0", None)
        purge(home)
        assert _state(home) == _expect(None, NO_CHANGES)
        _check_swept(home)

    return Scenario(
        "remove", lambda home: _install(home, "0.1.0", OLD_ENV), lambda home, _: purge(home), check
    )


def _env() -> Scenario:
    def change(home: Home) -> None:
        change_env(home, DEFAULT_PRINCIPAL, NAME, NEW_ENV)

    return Scenario(
        "env",
        lambda home: _install(home, "0.1.0", OLD_ENV),
        lambda home, _: change(home),
        lambda home, _: _check_change(
            home, _expect("0.1.0", OLD_ENV), _expect("0.1.0", NEW_ENV), lambda: change(home)
        ),
    )


def _kv() -> Scenario:
    def space(store: KvStore) -> KvSpace:
        return store.space(DEFAULT_PRINCIPAL, NAME)

    def act(home: Home, tell: Callable[[str], None]) -> None:
        with KvStore(home.state_db) as store:
            for number in range(KV_ROUNDS):
                space(store).set(f"key-{number}", b"%d" % number * 2000)
                tell(f"key-{number}")
                previous = b"%d" % (number - 1) if number else None
                assert space(store).cas("counter", previous, b"%d" % number)
                tell(f"counter-{number}")

    def check(home: Home, told: tuple[str, ...]) -> None:
        with KvStore(home.state_db) as store:
            for name in (name for name in told if name.startswith("key-")):
                number = name.removeprefix("key-").encode()
                assert space(store).get(name) == number * 2000, name
            counted = [int(name.removeprefix("counter-")) for name in told if name.startswith("counter-")]
            value = space(store).get("counter")
            assert (-1 if value is None else int(value)) - max(counted, default=-1) in (0, 1)
            space(store).clear_prefix("")
        _check_swept(home)

    return Scenario("kv", lambda home: open_home(home, create=True), act, check)


def _audit() -> Scenario:
    """Batches, a new session half-way, and cuts at the front; what was told is on record and verifies."""

    def act(home: Home, tell: Callable[[str], None]) -> None:
        seed = load_runtime_seed(home, create=True)
        for session in range(2):
            store = AuditStore(home.audit_db, seed, Retention(entries=AUDIT_KEPT), segment_entries=8)
            for number in range(session * AUDIT_ROUNDS, (session + 1) * AUDIT_ROUNDS):
                store.append([draft(number) for _ in range(AUDIT_BATCH)])
                tell(f"batch-{number}")
                store.prune()
            store.close()

    def check(home: Home, told: tuple[str, ...]) -> None:
        key = bytes.fromhex(public_hex(load_runtime_seed(home, create=True)))
        written = _verified_batches(home, key)
        assert written - len(told) in (0, 1), (written, told)
        act(home, lambda _: None)
        assert _verified_batches(home, key) == written + 2 * AUDIT_ROUNDS
        home.audit_db.unlink()
        _check_swept(home)

    def prepare(home: Home) -> None:
        open_home(home, create=True)
        load_runtime_seed(home, create=True)

    return Scenario("audit", prepare, act, check)


def _verified_batches(home: Home, key: bytes) -> int:
    """How many batches were ever written; every one that is left is as it was recorded."""
    with read_audit(home.audit_db) as reader:
        if reader is None:
            return 0
        result = verify(reader, key)
        assert result.findings == [], result.findings
        total = result.entries + result.pruned_entries
        assert total % AUDIT_BATCH == 0
        return total // AUDIT_BATCH


def _daemon() -> Scenario:
    def boot(home: Home) -> None:
        files = RunFiles(home)
        files.acquire()
        load_runtime_seed(home, create=True)
        ensure_default(home, now=NOW)
        files.claim_socket_path()
        files.write_pid()
        files.write_token()
        record_tools(home, DEFAULT_PRINCIPAL, {NAME: ("hello",)})
        files.write_ready(home.root)
        assert liveness(home) is Liveness.RUNNING
        files.clear()

    def check(home: Home, _: tuple[str, ...]) -> None:
        assert liveness(home) is Liveness.STOPPED
        boot(home)
        assert liveness(home) is Liveness.STOPPED
        assert not any(path.exists() for path in (home.ready_file, home.pid_file, home.token_file))
        profile = ensure_default(home, now=NOW)
        seed = principal_seed(home, DEFAULT_PRINCIPAL, create=False)
        assert [key.public_key for key in profile.public_keys] == [public_hex(seed)]
        _check_swept(home)

    return Scenario("daemon", lambda home: None, lambda home, _: boot(home), check)


def _logs() -> Scenario:
    day_s = 86_400.0

    def write(home: Home, tell: Callable[[str], None]) -> None:
        moment = iter(range(1, 1000))
        sink = LogSink(home, clock=lambda: next(moment) * day_s, run_aside=lambda work: work())
        for number in range(LOG_LINES):
            sink.append(DEFAULT_PRINCIPAL, NAME, "info", f"line {number}")
            tell(f"line {number}")
        sink.close()

    def check(home: Home, told: tuple[str, ...]) -> None:
        path = home.capsule_log(DEFAULT_PRINCIPAL, NAME)
        messages = [record.message for record in read_records([path]) if record.is_parsed]
        assert [message for message in messages if message in told] == list(told)
        write(home, lambda _: None)
        after = [record.message for record in read_records([path]) if record.is_parsed]
        assert after[-LOG_LINES:] == [f"line {number}" for number in range(LOG_LINES)]

    return Scenario("logs", lambda home: open_home(home, create=True), write, check)


def all_scenarios() -> tuple[Scenario, ...]:
    """Every scenario, the cheap ones last."""
    return (
        _upgrade(),
        _first_install(),
        _reinstall_over_damage(),
        _remove(),
        _env(),
        _daemon(),
        _kv(),
        _audit(),
        _logs(),
    )


def make_home(folder: Path) -> Home:
    """The home of one round: below `folder`, which holds the sources too."""
    return Home(folder / "home")
