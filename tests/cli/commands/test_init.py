"""`aos init` on a real home with a catalogue of the test's; only the activator is a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from aos_cli.commands import init
from aos_cli.install import journey
from aos_cli.install.activation import Activated
from aos_runtime.capsule.archive import scan_archive
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store import commit, stage
from aos_runtime.store.bundled import BundledCapsule
from aos_runtime.store.installed import check_installed, read_installed
from tests.cli.conftest import RunAos
from tests.support.capsules import make_archive, write_capsule

NET = '\n[capabilities]\nnet = ["x.org"]\n'
Bundle = Callable[..., None]


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bundle:
    """`bundle("name version", ..., extra=...)`: what the wheel brings."""

    def put(*capsules: str, extra: str = "") -> None:
        rows = []
        for text in capsules:
            name, version = text.split()
            path = write_capsule(
                tmp_path / "wheel" / f"{name}.capsule", make_archive(name, version, extra=extra)
            )
            with path.open("rb") as file:
                digest = scan_archive(file).content_digest
            rows.append(
                BundledCapsule(
                    name=CapsuleName(name), version=version, path=path, content_digest=digest, asks=("net",)
                )
            )
        for module in (init, stage, commit):
            monkeypatch.setattr(module, "read_catalogue", lambda: tuple(rows))

    monkeypatch.setattr(
        journey, "activate", lambda stage, environ, questions: Activated(hook="skipped", by_daemon=False)
    )
    return put


def version_of(home: Home, name: str) -> str:
    return read_installed(home, DEFAULT_PRINCIPAL, CapsuleName(name)).version


def test_without_a_yes_nothing_is_installed_that_asks(run_aos: RunAos, home: Home, bundle: Bundle) -> None:
    bundle("files 0.1.0", extra=NET)
    ended = run_aos("init")
    assert ended.status == 1
    assert "Capsule files 0.1.0\n  Signed by:  comes with this aos" in ended.err
    assert (
        "error: files: capsule `files` needs an approval, because it asks for more than it holds" in ended.err
    )
    assert "hint: read what it asks for, then pass --yes to approve" in ended.err
    assert ended.err.endswith("Installed 0 of 1; 0 were there already.\n")
    assert not home.capsule(DEFAULT_PRINCIPAL, CapsuleName("files")).exists()


def test_with_a_yes_all_are_installed_once(run_aos: RunAos, home: Home, bundle: Bundle) -> None:
    bundle("files 0.1.0", "other 0.2.0", extra=NET)
    ended = run_aos("init", "-y", "--json")
    told = json.loads(ended.out)
    assert (ended.status, [one["name"] for one in told["installed"]]) == (0, ["files", "other"])
    assert (told["unchanged"], told["failed"], told["total"]) == ([], [], 2)
    assert [one["origin"] for one in told["installed"]] == ["bundled", "bundled"]
    installed = read_installed(home, DEFAULT_PRINCIPAL, CapsuleName("files"))
    assert installed.bundled and installed.receipt.capabilities.net == ("x.org",)
    again = run_aos("init", "--json")
    assert (again.status, json.loads(again.out)) == (
        0,
        {
            "installed": [],
            "unchanged": [
                {"name": "files", "version": "0.1.0", "reason": "current"},
                {"name": "other", "version": "0.2.0", "reason": "current"},
            ],
            "failed": [],
            "total": 2,
        },
    )


def test_a_newer_one_replaces_it_and_a_removed_one_stays_away(
    run_aos: RunAos, home: Home, bundle: Bundle, tmp_path: Path
) -> None:
    bundle("files 0.1.0", "other 0.1.0", extra=NET)
    run_aos("init", "-y")
    assert run_aos("capsule", "remove", "other").status == 0
    bundle("files 0.2.0", "other 0.2.0", extra=NET)
    ended = run_aos("init")
    assert (ended.status, version_of(home, "files")) == (0, "0.2.0"), ended.err
    assert ended.err.endswith(
        "✓ Upgraded files from 0.1.0 to 0.2.0.\n"
        f"other was removed; to have it again: aos capsule install {tmp_path}/wheel/other.capsule\n"
        "Installed 1 of 2; 0 were there already.\n"
    )
    told = json.loads(run_aos("init", "--json").out)
    assert [row["reason"] for row in told["unchanged"]] == ["current", "removed"]


def damage_binary(home: Home) -> None:
    digest = read_installed(home, DEFAULT_PRINCIPAL, CapsuleName("files")).receipt.wasm_digest
    assert digest is not None
    home.blob(digest).write_bytes(b"other")


def damage_manifest(home: Home) -> None:
    (home.capsule(DEFAULT_PRINCIPAL, CapsuleName("files")) / "Capsule.toml").write_bytes(b"other")


@pytest.mark.parametrize("damage", [damage_binary, damage_manifest])
def test_a_damaged_one_is_put_back(
    run_aos: RunAos, home: Home, bundle: Bundle, damage: Callable[[Home], None]
) -> None:
    bundle("files 0.1.0", "other 0.1.0", extra=NET)
    run_aos("init", "-y")
    damage(home)
    ended = run_aos("init", "-y")
    assert ended.status == 0, ended.err
    assert "files is damaged and is put back as it came with aos" in ended.err
    check_installed(home, read_installed(home, DEFAULT_PRINCIPAL, CapsuleName("files")))


def test_one_failure_does_not_stop_the_others(
    run_aos: RunAos, home: Home, bundle: Bundle, tmp_path: Path
) -> None:
    bundle("files 0.1.0", "other 0.1.0")
    (tmp_path / "wheel/files.capsule").write_bytes(b"no capsule")
    ended = run_aos("init", "-y", "--json")
    told = json.loads(ended.out)
    assert (ended.status, [one["name"] for one in told["installed"]]) == (1, ["other"])
    assert [(one["name"], one["error"]["code"]) for one in told["failed"]] == [("files", "archive-not-gzip")]


def test_an_installation_without_capsules_says_what_brings_them(run_aos: RunAos, bundle: Bundle) -> None:
    bundle()
    ended = run_aos("init")
    assert (ended.status, ended.out) == (1, "")
    assert ended.err.startswith("error: this installation has no bundled capsules\nhint: install the wheel")
