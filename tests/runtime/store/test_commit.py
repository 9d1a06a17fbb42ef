"""store.commit: one step, the last; everything before it is undone when it fails."""

from __future__ import annotations

import errno
import os
import threading
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from aos_runtime.errors import AosError, Conflict, Denied, NotFound, Unavailable
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey, PrincipalName
from aos_runtime.store import commit as module
from aos_runtime.store.bundled import read_removed
from aos_runtime.store.commit import Approval, Removed, change_env, commit, remove_installed
from aos_runtime.store.content import read_blob
from aos_runtime.store.env import EnvChanges, read_env, read_secrets
from aos_runtime.store.installed import list_installed, load_installed, read_installed
from aos_runtime.store.keys import load_runtime_seed
from aos_runtime.store.kv import KvStore
from aos_runtime.store.receipts import ApprovalSource
from aos_runtime.store.stage import stage_source
from tests.runtime.store.conftest import Install, names
from tests.support.capsules import COMPONENT, make_archive, write_capsule

DEMO = CapsuleName("demo")
OLD = EnvChanges(values={EnvKey("REGION"): "eu"}, secrets={EnvKey("TOKEN"): "old"})
NEW = EnvChanges(values={EnvKey("REGION"): "us", EnvKey("MORE"): "1"}, secrets={EnvKey("TOKEN"): "new"})


def _env(home: Home) -> tuple[dict[str, object], dict[str, str]]:
    return read_env(home, DEFAULT_PRINCIPAL, DEMO), read_secrets(home, DEFAULT_PRINCIPAL, DEMO)


def test_meta_and_receipt_record_the_install(home: Home, install: Install, now: datetime) -> None:
    seed = load_runtime_seed(home, create=True)
    first = install(seed=seed)
    later = now + timedelta(days=1)
    second = install(version="0.2.0", seed=seed, at=later)
    assert first.meta.installed_at == second.meta.installed_at == now.isoformat()
    assert second.meta.updated_at == later.isoformat()
    assert (second.meta.version, second.receipt.version, second.version) == ("0.2.0",) * 3
    assert second.meta.source is not None
    assert Path(second.meta.source).is_absolute()
    assert list(second.meta.wit_files) == ["demo.wit"]
    digest = second.meta.wit_files["demo.wit"]
    assert (home.wit_store / f"{digest}.wit").read_bytes() == b"package demo:demo;\n"
    assert second.meta.wasm_hash == second.receipt.wasm_digest
    assert read_blob(home, second.receipt.wasm_digest or first.receipt.content_digest) == COMPONENT
    assert second.meta.signer == second.receipt.signer
    assert second.meta.signature == second.receipt.signature


def test_ins_18_after_an_upgrade_only_the_new_generation_and_receipt_are_left(
    home: Home, install: Install
) -> None:
    install()
    found = install(version="0.2.0")
    assert list(home.generations(DEFAULT_PRINCIPAL, DEMO).iterdir()) == [found.generation]
    assert [path.stem for path in home.receipts(DEFAULT_PRINCIPAL, DEMO).iterdir()] == [
        found.receipt.content_digest
    ]
    assert names(home.staging) == []
    load_installed(home, DEFAULT_PRINCIPAL, DEMO)


def test_a_reinstall_replaces_a_damaged_version(home: Home, install: Install) -> None:
    found = install()
    for path in (*found.generation.rglob("*"), *home.blobs.iterdir()):
        if path.is_file():
            path.write_bytes(b"garbage")
    install()
    load_installed(home, DEFAULT_PRINCIPAL, DEMO)


def test_ins_05_a_repaired_binary_is_told(
    home: Home, install: Install, tmp_path: Path, now: datetime
) -> None:
    found = install()
    for damaged in (False, True):
        if damaged:
            next(home.blobs.iterdir()).write_bytes(b"garbage")
        source = write_capsule(tmp_path / "again.capsule", make_archive())
        with stage_source(home, DEFAULT_PRINCIPAL, source, now=now, catalogue=()) as stage:
            commit(stage, approval=Approval(source=ApprovalSource.EXPLICIT), source_text=None)
            assert stage.repaired == ((found.receipt.wasm_digest,) if damaged else ())


@pytest.mark.parametrize(
    ("source", "allowed"),
    [
        (ApprovalSource.LOCAL_BUILD, False),
        (ApprovalSource.BUNDLED, False),
        (ApprovalSource.EXPLICIT, True),
    ],
)
def test_an_approval_covers_only_its_own_origin(
    home: Home, tmp_path: Path, now: datetime, source: ApprovalSource, allowed: bool
) -> None:
    path = write_capsule(tmp_path / "a.capsule", make_archive())
    with stage_source(home, DEFAULT_PRINCIPAL, path, now=now, catalogue=()) as stage:
        if allowed:
            assert commit(stage, approval=Approval(source=source), source_text=None).version == "0.1.0"
            return
        with pytest.raises(Denied) as caught:
            commit(stage, approval=Approval(source=source), source_text=None)
        assert caught.value.code == "approval-mismatch"
    assert list_installed(home, DEFAULT_PRINCIPAL) == ()


def test_ins_08_values_survive_a_reinstall_and_an_upgrade(home: Home, install: Install) -> None:
    install(env=OLD)
    install()
    install(version="0.2.0", env=EnvChanges(values={EnvKey("MORE"): "1"}))
    assert _env(home) == ({"MORE": "1", "REGION": "eu", "TOKEN": ""}, {"TOKEN": "old"})


@pytest.mark.parametrize(
    "step", ["write_receipt", "write_undo", "apply_changes", "make_link", "rename", "put_blob", "put_wit"]
)
def test_ins_21_a_failure_before_the_last_step_changes_nothing(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    old = install(env=OLD)

    def refuse(*_arguments: object, **_options: object) -> None:
        raise Unavailable("no-space", "no space left", hint="free some")

    monkeypatch.setattr(module, step, refuse)
    with pytest.raises(Unavailable):
        install(version="0.2.0", env=NEW, wasm=COMPONENT + b"\0\x04\x03abc")
    monkeypatch.undo()
    assert load_installed(home, DEFAULT_PRINCIPAL, DEMO)[0] == old
    assert _env(home) == ({"REGION": "eu", "TOKEN": ""}, {"TOKEN": "old"})
    assert list(home.generations(DEFAULT_PRINCIPAL, DEMO).iterdir()) == [old.generation]
    assert names(home.staging) == []


@pytest.mark.parametrize(
    "error", [Unavailable("not-ready", "it does not serve", hint="x"), KeyboardInterrupt()]
)
def test_a_version_that_is_not_confirmed_gives_way_to_the_one_before(
    home: Home, install: Install, error: BaseException
) -> None:
    old = install(env=OLD)
    seen: list[str] = []

    def refuse() -> None:
        seen.append(read_installed(home, DEFAULT_PRINCIPAL, DEMO).version)
        raise error

    with pytest.raises(type(error)):
        install(version="0.2.0", env=NEW, wasm=COMPONENT + b"\0\x04\x03abc", confirm=refuse)
    assert seen == ["0.2.0"], "readers see the new version while it is tried"
    assert load_installed(home, DEFAULT_PRINCIPAL, DEMO)[0] == old
    assert _env(home) == ({"REGION": "eu", "TOKEN": ""}, {"TOKEN": "old"})
    assert list(home.generations(DEFAULT_PRINCIPAL, DEMO).iterdir()) == [old.generation]
    assert names(home.staging) == []


def test_a_first_install_has_nothing_to_give_way_to(home: Home, install: Install) -> None:
    install(confirm=lambda: pytest.fail("there is no version to put back"))
    assert load_installed(home, DEFAULT_PRINCIPAL, DEMO)[0].version == "0.1.0"


def test_a_sync_that_fails_after_the_swap_does_not_take_the_version_back(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(env=OLD)
    real = module.rename

    def rename_then_fail(source: Path, target: Path) -> None:
        real(source, target)
        if target == home.capsule(DEFAULT_PRINCIPAL, DEMO):
            raise Unavailable("file-operation-failed", "input/output error", hint="look")

    monkeypatch.setattr(module, "rename", rename_then_fail)
    assert install(version="0.2.0", env=NEW).version == "0.2.0"
    assert _env(home)[1] == {"TOKEN": "new"}


def test_a_failure_of_the_tidying_is_not_a_failure_of_the_install(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise Unavailable("no-space", "no space left", hint="free some")

    for step in ("sweep_capsule", "record_removed", "rebuild"):
        monkeypatch.setattr(module, step, refuse)
    assert install().version == "0.1.0"


def test_change_env_sets_and_forgets(home: Home, install: Install) -> None:
    install(env=OLD)
    change_env(home, DEFAULT_PRINCIPAL, DEMO, NEW)
    assert _env(home) == ({"MORE": "1", "REGION": "us", "TOKEN": ""}, {"TOKEN": "new"})
    change_env(home, DEFAULT_PRINCIPAL, DEMO, EnvChanges(removed=(EnvKey("TOKEN"), EnvKey("MORE"))))
    assert _env(home) == ({"REGION": "us"}, {})
    assert names(home.staging) == []


def test_change_env_with_a_bad_value_changes_nothing(home: Home, install: Install) -> None:
    install(env=OLD)
    with pytest.raises(AosError):
        change_env(home, DEFAULT_PRINCIPAL, DEMO, EnvChanges(secrets={EnvKey("TOKEN"): "x" * 70_000}))
    assert _env(home)[1] == {"TOKEN": "old"}


def test_ins_09_values_survive_a_removal_and_a_purge_says_what_it_took(home: Home, install: Install) -> None:
    install(env=OLD)
    with KvStore(home.state_db) as store:
        store.space(DEFAULT_PRINCIPAL, DEMO).set("k", b"v")
        store.space(DEFAULT_PRINCIPAL, CapsuleName("other")).set("k", b"v")
    removed = remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False)
    assert removed == Removed(name=DEMO, version="0.1.0", env_keys=(), secret_keys=(), kv_entries=0)
    assert list_installed(home, DEFAULT_PRINCIPAL) == ()
    assert _env(home)[1] == {"TOKEN": "old"}
    install()
    removed = remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=True)
    assert removed == Removed(
        name=DEMO, version="0.1.0", env_keys=("REGION",), secret_keys=(EnvKey("TOKEN"),), kv_entries=1
    )
    assert _env(home) == ({}, {})
    with KvStore(home.state_db) as store:
        assert store.space(DEFAULT_PRINCIPAL, CapsuleName("other")).get("k") == b"v"


def test_a_purge_after_a_removal_takes_the_leftovers(home: Home, install: Install) -> None:
    install(env=OLD)
    remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False)
    removed = remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=True)
    assert (removed.version, removed.secret_keys) == (None, ("TOKEN",))
    with pytest.raises(NotFound):
        remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=True)


def test_removing_what_is_not_there_creates_nothing(home: Home) -> None:
    with pytest.raises(NotFound) as caught:
        remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False)
    assert caught.value.code == "capsule-not-installed"
    assert not home.root.exists()


def test_a_damaged_capsule_can_be_removed(home: Home, install: Install) -> None:
    (install().generation / "meta.json").write_bytes(b"")
    assert remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False).version == "unknown"
    assert list_installed(home, DEFAULT_PRINCIPAL) == ()


def test_what_others_import_is_removed_only_by_force(home: Home, install: Install) -> None:
    install("provider", extra='\n[exports]\n"acme:notes" = "1.0.0"\n')
    install("user", extra='\n[imports]\n"acme:notes" = "^1.0"\n')
    provider = CapsuleName("provider")
    with pytest.raises(Conflict) as caught:
        remove_installed(home, DEFAULT_PRINCIPAL, provider, purge=False)
    assert caught.value.code == "capsule-needed"
    assert caught.value.context["dependents"] == ["user"]
    assert read_installed(home, DEFAULT_PRINCIPAL, provider).name == provider
    remove_installed(home, DEFAULT_PRINCIPAL, provider, purge=False, force=True)


def test_a_removed_bundled_capsule_is_remembered_until_it_is_installed_again(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aos_runtime.store.bundled import BundledCapsule

    found = install()
    row = BundledCapsule(
        name=DEMO, version="0.1.0", path=home.root, content_digest=found.receipt.content_digest
    )
    monkeypatch.setattr(module, "read_catalogue", lambda: (row,))
    remove_installed(home, DEFAULT_PRINCIPAL, DEMO, purge=False)
    assert read_removed(home, DEFAULT_PRINCIPAL) == {"demo"}
    install()
    assert read_removed(home, DEFAULT_PRINCIPAL) == frozenset()


def test_principals_do_not_see_each_others_capsules(home: Home, install: Install) -> None:
    alice = PrincipalName("alice")
    install(principal=alice, env=OLD)
    assert list_installed(home, DEFAULT_PRINCIPAL) == ()
    assert [entry.name for entry in list_installed(home, alice)] == ["demo"]
    assert _env(home) == ({}, {})


def test_ins_06_installs_at_once_end_in_one_whole_version(home: Home, tmp_path: Path, now: datetime) -> None:
    versions = [f"0.{number}.0" for number in range(4)]
    barrier = threading.Barrier(len(versions))
    failures: list[BaseException] = []

    def run(version: str) -> None:
        data = make_archive(version=version, files={"assets/v": version.encode()})
        path = write_capsule(tmp_path / version / "a.capsule", data)
        barrier.wait(10)
        try:
            with stage_source(home, DEFAULT_PRINCIPAL, path, now=now, catalogue=()) as stage:
                approval = Approval(source=ApprovalSource.EXPLICIT)
                commit(stage, approval=approval, source_text=str(path))
        except AosError as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(version,)) for version in versions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failures == []
    found, _ = load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert (found.generation / "assets" / "v").read_text() == found.version
    assert len(list(home.generations(DEFAULT_PRINCIPAL, DEMO).iterdir())) == 1


def test_errno_of_a_full_disk_reaches_the_operator_in_words(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = install()
    real = os.fsync

    def full(handle: int) -> None:
        if "/bin/" in str(Path(f"/proc/self/fd/{handle}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable) as caught:
        install(version="0.2.0", wasm=COMPONENT + b"\0\x04\x03abc")
    monkeypatch.undo()
    assert caught.value.code == "no-space"
    assert load_installed(home, DEFAULT_PRINCIPAL, DEMO)[0] == old
