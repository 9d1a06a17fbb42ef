"""store.staging: folders of the living are left, those of the dead are swept and undone."""

from __future__ import annotations

import os

import pytest

from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, EnvKey
from aos_runtime.store.env import EnvChanges, apply_changes, capture, read_env, read_secrets
from aos_runtime.store.staging import Undo, capsule_lock, claim_folder, sweep_staging, write_undo
from tests.runtime.store.conftest import Install

DEMO = CapsuleName("demo")
NEW = EnvChanges(values={EnvKey("A"): "new"}, secrets={EnvKey("S"): "new"})


def _die_after_changing_env(home: Home, generation: str) -> None:
    """What a process leaves that was killed between its env change and its commit."""
    folder = claim_folder(home)
    before = capture(home, DEFAULT_PRINCIPAL, DEMO, NEW)
    undo = Undo(principal=DEFAULT_PRINCIPAL, capsule=DEMO, generation=generation, before=before)
    write_undo(folder.path, undo)
    apply_changes(home, DEFAULT_PRINCIPAL, DEMO, NEW)
    assert folder._handle is not None
    os.close(folder._handle)


def test_the_folder_of_a_living_process_is_left(home: Home) -> None:
    folder = claim_folder(home)
    sweep_staging(home)
    assert folder.path.is_dir()
    folder.release()
    folder.release()
    assert not folder.path.exists()


def test_ins_21_the_env_of_a_dead_install_is_put_back(home: Home, install: Install) -> None:
    install(env=EnvChanges(values={EnvKey("A"): "old"}))
    _die_after_changing_env(home, "0" * 64 + ".0000000000000000")
    sweep_staging(home)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"A": "old"}
    assert read_secrets(home, DEFAULT_PRINCIPAL, DEMO) == {}
    assert list(home.staging.iterdir()) == []


def test_the_env_of_an_install_that_was_committed_stays(home: Home, install: Install) -> None:
    generation = install(env=EnvChanges(values={EnvKey("A"): "old"})).generation
    _die_after_changing_env(home, generation.name)
    sweep_staging(home)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"A": "new", "S": ""}
    assert list(home.staging.iterdir()) == []


def test_what_another_writer_is_changing_is_left_to_it(home: Home, install: Install) -> None:
    install()
    _die_after_changing_env(home, "gone")
    lock = capsule_lock(home, DEFAULT_PRINCIPAL, DEMO)
    lock.acquire(0)
    sweep_staging(home)
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {"A": "new", "S": ""}
    sweep_staging(home, held=(DEFAULT_PRINCIPAL, DEMO))
    lock.release()
    assert read_env(home, DEFAULT_PRINCIPAL, DEMO) == {}
    assert list(home.staging.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"principal": "../x", "capsule": "demo", "generation": "g"}']
)
def test_an_undo_record_that_is_none_is_swept_without_harm(home: Home, text: str) -> None:
    folder = claim_folder(home)
    (folder.path / "undo.json").write_text(text)
    assert folder._handle is not None
    os.close(folder._handle)
    sweep_staging(home)
    assert list(home.staging.iterdir()) == []


def test_a_stray_file_in_the_staging_folder_hurts_nobody(home: Home) -> None:
    claim_folder(home).release()
    (home.staging / "stray").write_bytes(b"")
    (home.staging / "link").symlink_to("/etc")
    sweep_staging(home)
    folder = claim_folder(home)
    folder.release()
