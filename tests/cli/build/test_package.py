"""Which files go into an archive, and that the same files give the same bytes."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from aos_cli.build.package import (
    CONTRACTS_PATH,
    Extra,
    Wit,
    collect_named,
    collect_opaque,
    pack,
    stage_wit,
)
from aos_runtime.capsule.archive import iter_members, scan_archive
from aos_runtime.capsule.provenance import verify_provenance
from aos_runtime.errors import AosError, InvalidInput, NotFound

MANIFEST = b'[package]\nname = "demo"\nversion = "0.1.0"\n[[component]]\nfile = "demo.wasm"\n'
COMPONENT = ("demo.wasm", b"\0asm\x0d\0\x01\0")
SEED = bytes(range(32))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def paths(extras: tuple[Extra, ...]) -> list[str]:
    return [extra.path for extra in extras]


def test_arc_11_everything_that_is_named_is_packed_at_its_path(tmp_path: Path) -> None:
    write(tmp_path, {"commands/deploy.toml": "", "AGENTS.md": "", "bin/x/tool": "", "src/lib.rs": ""})
    assert paths(collect_named(tmp_path, ["commands/deploy.toml", "AGENTS.md", "bin"])) == [
        "commands/deploy.toml",
        "AGENTS.md",
        "bin/x/tool",
    ]


def test_arc_11_all_that_is_named_and_missing_fails_the_build(tmp_path: Path) -> None:
    write(tmp_path, {"here": ""})
    with pytest.raises(NotFound) as caught:
        collect_named(tmp_path, ["gone.md", "here", "also/gone"])
    assert (caught.value.code, caught.value.context["missing"]) == (
        "named-file-missing",
        ["gone.md", "also/gone"],
    )


def test_assets_and_skills_are_packed_with_the_executable_bit_only(tmp_path: Path) -> None:
    write(tmp_path, {"assets/b.txt": "b", "assets/a/run.sh": "#!/bin/sh", "skills/s.md": "s"})
    (tmp_path / "assets" / "a" / "run.sh").chmod(0o700)
    assert collect_opaque(tmp_path) == (
        Extra(path="assets/a/run.sh", data=b"#!/bin/sh", executable=True),
        Extra(path="assets/b.txt", data=b"b", executable=False),
        Extra(path="skills/s.md", data=b"s", executable=False),
    )


def test_a_project_without_either_has_none(tmp_path: Path) -> None:
    assert collect_opaque(tmp_path) == ()


@pytest.mark.parametrize("where", ["assets", "assets/link", "assets/deep/loop", "skills/secret"])
def test_arc_14_no_link_is_packed_or_followed(tmp_path: Path, where: str) -> None:
    write(tmp_path, {"outside/key": "secret"})
    (tmp_path / where).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / where).symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidInput) as caught:
        collect_opaque(tmp_path)
    assert (caught.value.code, caught.value.message) in [
        ("symlink-refused", f"{where} is a symbolic link"),
    ]


def test_arc_14_nor_on_the_way_to_a_named_file(tmp_path: Path) -> None:
    write(tmp_path, {"outside/key": "secret"})
    (tmp_path / "docs").symlink_to("outside")
    with pytest.raises(InvalidInput, match="docs is a symbolic link"):
        collect_named(tmp_path, ["docs/key"])


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    os.mkfifo(tmp_path / "assets" / "pipe")
    with pytest.raises(InvalidInput, match="is neither a file nor a folder"):
        collect_opaque(tmp_path)
    write(tmp_path, {"skills": "a file"})
    (tmp_path / "assets" / "pipe").unlink()
    with pytest.raises(InvalidInput, match="skills is no folder"):
        collect_opaque(tmp_path)


@pytest.mark.parametrize("name", ["a\\b", "tab\there", "dot."])
def test_names_that_no_archive_may_hold_are_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, {f"assets/{name}": ""})
    with pytest.raises(InvalidInput) as caught:
        collect_opaque(tmp_path)
    assert caught.value.code == "packed-path"


def test_without_a_wit_folder_a_stub_carries_the_contracts(tmp_path: Path) -> None:
    wit = stage_wit(tmp_path, b"package x;", no_contracts="none")
    assert [(extra.path, extra.data) for extra in wit.files] == [
        ("wit/capsule.wit", b"package astrid:capsule-stub@1.0.0;\n\ninterface stub {\n}\n"),
        (CONTRACTS_PATH, b"package x;"),
    ]
    assert (wit.folders, wit.notes) == (("wit", "wit/deps", "wit/deps/astrid-contracts"), ())


def test_bld_20_the_authors_wit_is_kept_with_its_own_deps(tmp_path: Path) -> None:
    write(tmp_path, {"wit/a.wit": "a", "wit/deps/acme/acme.wit": "b"})
    (tmp_path / "wit" / "empty").mkdir()
    wit = stage_wit(tmp_path, b"c", no_contracts="none")
    assert paths(wit.files) == ["wit/a.wit", "wit/deps/acme/acme.wit", CONTRACTS_PATH]
    assert wit.folders == ("wit", "wit/deps", "wit/deps/acme", "wit/deps/astrid-contracts", "wit/empty")


def test_contracts_of_the_author_give_way_and_that_is_said(tmp_path: Path) -> None:
    write(tmp_path, {CONTRACTS_PATH: "old"})
    wit = stage_wit(tmp_path, b"new", no_contracts="none")
    assert (
        (CONTRACTS_PATH, b"new") in [(extra.path, extra.data) for extra in wit.files],
        len(wit.notes),
    ) == (
        True,
        1,
    )


def test_a_wit_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"wit": "a file"})
    with pytest.raises(InvalidInput, match="wit is no folder"):
        stage_wit(tmp_path, b"c", no_contracts="")


def test_what_is_skipped_is_said(tmp_path: Path) -> None:
    assert stage_wit(tmp_path, None, no_contracts="why not") == Wit(notes=("why not",))


def test_arc_14_a_link_in_wit_is_refused_and_not_dropped(tmp_path: Path) -> None:
    write(tmp_path, {"wit/a.wit": "a"})
    (tmp_path / "wit" / "b.wit").symlink_to("a.wit")
    with pytest.raises(InvalidInput, match=r"wit/b\.wit is a symbolic link"):
        stage_wit(tmp_path, None, no_contracts="")


def archive(folder: Path, *, seed: bytes | None = SEED, compression: str = "gzip") -> bytes:
    wit = stage_wit(folder, b"package c;", no_contracts="")
    kind = "zstd" if compression == "zstd" else "gzip"
    return pack(MANIFEST, COMPONENT, collect_opaque(folder), wit, compression=kind, seed=seed).data


def test_arc_09_order_times_and_umask_leave_no_trace(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    files = {"assets/a": "1", "assets/b/c": "2", "skills/s": "3"}
    write(one, files)
    before = os.umask(0o077)
    try:
        write(two, dict(reversed(files.items())))
    finally:
        os.umask(before)
    os.utime(two / "assets" / "a", (0, 0))
    assert archive(one) == archive(two)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_signed_archive_reads_back_as_it_was_packed(tmp_path: Path, compression: str) -> None:
    write(tmp_path, {"assets/a": "1"})
    file = io.BytesIO(archive(tmp_path, compression=compression))
    inventory = scan_archive(file)
    assert inventory.provenance is not None
    verify_provenance(inventory.provenance, inventory.content_digest)
    assert [member.path for member in iter_members(file, inventory)] == [
        "Capsule.toml",
        "demo.wasm",
        "assets/a",
        "wit/capsule.wit",
        CONTRACTS_PATH,
        "Capsule.provenance.json",
    ]


def test_without_a_seed_there_is_no_signature_and_the_digest_is_the_same(tmp_path: Path) -> None:
    unsigned = scan_archive(io.BytesIO(archive(tmp_path, seed=None)))
    signed = scan_archive(io.BytesIO(archive(tmp_path)))
    assert unsigned.provenance is None
    assert unsigned.content_digest == signed.content_digest


def test_two_names_that_some_file_systems_take_for_one_are_refused() -> None:
    extras = [Extra(path=path, data=b"", executable=False) for path in ("assets/a", "assets/A")]
    with pytest.raises(AosError):
        pack(MANIFEST, COMPONENT, extras, Wit(), compression="gzip", seed=None)
