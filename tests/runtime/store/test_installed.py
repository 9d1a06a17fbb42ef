"""store.installed: what is read is one whole generation, and what differs from the approval is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from aos_runtime.errors import AosError, Conflict, Corrupt, NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store import installed as module
from aos_runtime.store.installed import (
    Broken,
    Installed,
    check_installed,
    list_installed,
    list_names,
    load_installed,
    read_installed,
    read_pointer,
)
from tests.runtime.store.conftest import Install
from tests.support.capsules import COMPONENT

DEMO = CapsuleName("demo")


def test_an_installed_capsule_is_read_whole(home: Home, install: Install) -> None:
    install()
    found, wasm = load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert (found.name, found.version, found.bundled, wasm) == ("demo", "0.1.0", False, COMPONENT)
    assert sorted(path.name for path in found.generation.iterdir()) == [
        "Capsule.toml",
        "assets",
        "meta.json",
        "wit",
    ]
    assert found.generation.stat().st_mode & 0o777 == 0o700


def test_what_is_not_installed_is_said_with_the_command(home: Home) -> None:
    with pytest.raises(NotFound) as caught:
        read_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.code == "capsule-not-installed"
    assert "aos capsule list" in caught.value.hint
    assert list_installed(home, DEFAULT_PRINCIPAL) == ()
    assert not home.root.exists()


def _files_of(home: Home) -> list[Path]:
    found = read_installed(home, DEFAULT_PRINCIPAL, DEMO)
    tree = [path for path in found.generation.rglob("*") if path.is_file() and path.name != "meta.json"]
    return [*tree, *home.blobs.iterdir()]


def test_a_flipped_bit_in_any_installed_file_is_refused(home: Home, install: Install) -> None:
    install(files={"assets/deep/er/data.bin": bytes(range(256)), "skills/a.md": b"# a\n"})
    files = _files_of(home)
    assert len(files) == 6
    for path in files:
        good = path.read_bytes()
        for position in range(len(good)):
            bad = bytearray(good)
            bad[position] ^= 1 << (position % 8)
            path.write_bytes(bad)
            with pytest.raises(Corrupt) as caught:
                load_installed(home, DEFAULT_PRINCIPAL, DEMO)
            assert caught.value.code == "capsule-damaged"
            assert "aos capsule install" in caught.value.hint
        path.write_bytes(good)
    load_installed(home, DEFAULT_PRINCIPAL, DEMO)


def test_an_added_or_missing_file_is_refused_by_name(home: Home, install: Install) -> None:
    generation = install().generation
    (generation / "assets" / "extra.txt").write_bytes(b"")
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.message == (
        "capsule `demo` is damaged: `assets/extra.txt` is not part of what was approved"
    )
    (generation / "assets" / "extra.txt").unlink()
    (generation / "assets" / "note.txt").unlink()
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.message == "capsule `demo` is damaged: `assets/note.txt` is missing"


def test_a_file_replaced_by_a_link_to_the_same_bytes_is_refused(home: Home, install: Install) -> None:
    note = install().generation / "assets" / "note.txt"
    shutil.move(note, home.root / "note.txt")
    note.symlink_to(home.root / "note.txt")
    with pytest.raises(Corrupt):
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)


def test_ins_04_an_empty_blob_is_named_as_damaged(home: Home, install: Install) -> None:
    install()
    next(home.blobs.iterdir()).write_bytes(b"")
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert "`demo.wasm`: the stored WebAssembly binary" in caught.value.message
    assert "is empty" in caught.value.message


def test_meta_that_names_another_binary_is_refused(home: Home, install: Install) -> None:
    path = install().generation / "meta.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "wasm_hash": "0" * 64}))
    found = read_installed(home, DEFAULT_PRINCIPAL, DEMO)
    with pytest.raises(Corrupt) as caught:
        check_installed(home, found)
    assert "names another binary" in caught.value.message


def test_meta_without_a_hash_is_refused(home: Home, install: Install) -> None:
    path = install().generation / "meta.json"
    value = json.loads(path.read_text())
    del value["wasm_hash"]
    path.write_text(json.dumps(value))
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert "names another binary" in caught.value.message


def test_a_manifest_that_asks_for_more_than_the_receipt_is_refused(home: Home, install: Install) -> None:
    found = install(extra='\n[capabilities]\nnet = ["x.org"]\n')
    path = home.receipt(DEFAULT_PRINCIPAL, DEMO, found.receipt.content_digest)
    value = json.loads(path.read_text())
    value["approved_capabilities"]["net"] = []
    path.write_text(json.dumps(value))
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert "asks for more than was approved" in caught.value.message


def test_without_a_receipt_nothing_loads(home: Home, install: Install) -> None:
    found = install()
    home.receipt(DEFAULT_PRINCIPAL, DEMO, found.receipt.content_digest).unlink()
    with pytest.raises(Corrupt) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert "nothing records that it was approved" in caught.value.message


def test_a_generation_copied_to_another_principal_is_not_approved_there(home: Home, install: Install) -> None:
    from aos_runtime.names import PrincipalName

    install()
    other = PrincipalName("other")
    shutil.copytree(home.principal(DEFAULT_PRINCIPAL), home.principal(other), symlinks=True)
    with pytest.raises(Corrupt):
        load_installed(home, other, DEMO)


def test_lst_01_one_bad_entry_does_not_hide_the_others(home: Home, install: Install) -> None:
    install("alpha")
    install("beta")
    install("gamma")
    folder = home.installed(DEFAULT_PRINCIPAL)
    (folder / "stray").mkdir()
    (folder / "Not A Name").mkdir()
    (folder / ".DS_Store").write_bytes(b"")
    (folder / "elsewhere").symlink_to("/etc")
    meta = read_installed(home, DEFAULT_PRINCIPAL, CapsuleName("beta")).generation / "meta.json"
    meta.write_bytes(meta.read_bytes()[:20])
    entries = list_installed(home, DEFAULT_PRINCIPAL)
    assert [entry.name for entry in entries if isinstance(entry, Installed)] == ["alpha", "gamma"]
    broken = {entry.name: entry.reason for entry in entries if isinstance(entry, Broken)}
    assert sorted(broken) == ["Not A Name", "beta", "elsewhere", "stray"]
    assert broken["beta"].startswith("meta.json is damaged")
    assert "was not put there by an install" in broken["stray"]


def test_names_come_from_the_links_alone(home: Home, install: Install) -> None:
    install("alpha")
    (home.installed(DEFAULT_PRINCIPAL) / "stray").mkdir()
    assert list_names(home, DEFAULT_PRINCIPAL) == ("alpha",)


@pytest.mark.parametrize(
    "target",
    [
        "/etc",
        "../generations/other/" + "0" * 64 + "." + "0" * 16,
        "../generations/demo/../demo",
        "../generations/demo/short",
        "../../../other/.local/generations/demo/" + "0" * 64 + "." + "0" * 16,
    ],
)
def test_a_link_that_no_install_made_is_not_followed(home: Home, install: Install, target: str) -> None:
    install()
    home.capsule(DEFAULT_PRINCIPAL, DEMO).unlink()
    home.capsule(DEFAULT_PRINCIPAL, DEMO).symlink_to(target)
    with pytest.raises(Corrupt) as caught:
        read_pointer(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.code == "capsule-link-foreign"


def test_a_reader_starts_again_when_an_upgrade_sweeps_under_it(
    home: Home, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(version="0.1.0")
    real = module.read_receipt
    upgrades = iter(("0.2.0", "0.3.0"))

    def read_slowly(*arguments: object) -> object:
        version = next(upgrades, None)
        if version is not None:
            with monkeypatch.context() as plain:
                plain.setattr(module, "read_receipt", real)
                install(version=version)
        return real(*arguments)  # type: ignore[arg-type]  # the arguments of the call that is replaced

    found = read_installed(home, DEFAULT_PRINCIPAL, DEMO)
    monkeypatch.setattr(module, "read_receipt", read_slowly)
    found = read_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert found.version == "0.3.0"
    check_installed(home, found)


def test_every_refusal_is_an_aos_error_with_a_hint(home: Home, install: Install) -> None:
    found = install()
    for path in found.generation.rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    with pytest.raises(AosError) as caught:
        load_installed(home, DEFAULT_PRINCIPAL, DEMO)
    assert caught.value.hint
    assert not isinstance(caught.value, Conflict)
