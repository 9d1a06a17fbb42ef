"""The container: what is written, what is read back, and that a good archive is good in every packing."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aos_runtime.capsule.archive import (
    ArchiveEntry,
    Compression,
    Inventory,
    Member,
    entry_of,
    iter_member_pieces,
    iter_members,
    scan_archive,
    write_archive,
)
from aos_runtime.capsule.provenance import (
    PROVENANCE_FILE,
    bytes_digest,
    content_digest,
    render_provenance,
    sign_content,
)
from aos_runtime.errors import AosError, Corrupt, InvalidInput, LimitExceeded
from tests.support.tar_forms import (
    MANIFEST,
    by_tarfile,
    capsule,
    entry,
    gzip_with_fields,
    long_entry,
    packed,
    tar,
)

GOLDEN = Path(__file__).parents[2] / "golden/formats/v1"
SEED = bytes(range(32))
COMPRESSIONS: tuple[Compression, ...] = ("gzip", "zstd")

SAMPLE = (
    Member(path="wit/deps/acme/acme.wit", data=b"package acme:acme;\n"),
    Member(path="assets/a-b", data=b"yo\n"),
    Member(path="skills/s/SKILL.md", data=b"s\n"),
    Member(path="a.wasm", data=b"\0asm\x0d\0\x01\0"),
    Member(path="assets/run", data=b"#!/bin/sh\n"),
    Member(path="wit/a.wit", data=b"package a:b;\n"),
    Member(path="assets/a/b", data=b""),
    Member(path="Capsule.toml", data=MANIFEST, executable=True),
    Member(path="assets/plain", data=b"x", executable=True),
    Member(path="assets/" + "d" * 60 + "/" + "e" * 60 + "/f.txt", data=b"long\n"),
)
"""Members in no order, of every kind that a build packs."""


def signed(members: tuple[Member, ...]) -> tuple[Member, ...]:
    provenance = sign_content(content_digest(map(entry_of, members)), SEED)
    return (*members, Member(path=PROVENANCE_FILE, data=render_provenance(provenance)))


def scan(data: bytes) -> Inventory:
    return scan_archive(io.BytesIO(data))


def listing(data: bytes) -> list[tuple[str, str, str, int]]:
    """What another reader sees: path, type, mode, size."""
    with tarfile.open(fileobj=io.BytesIO(data)) as reader:
        return [(one.name, one.type.decode(), oct(one.mode), one.size) for one in reader]


def test_the_published_order_modes_and_folders() -> None:
    data = write_archive(signed(SAMPLE))
    assert listing(data) == [
        ("Capsule.toml", "0", "0o644", len(MANIFEST)),
        ("a.wasm", "0", "0o644", 8),
        ("assets/a/b", "0", "0o644", 0),
        ("assets/a-b", "0", "0o644", 3),
        ("assets/" + "d" * 60 + "/" + "e" * 60 + "/f.txt", "0", "0o644", 5),
        ("assets/plain", "0", "0o755", 1),
        ("assets/run", "0", "0o755", 10),
        ("skills/s/SKILL.md", "0", "0o644", 2),
        ("wit", "5", "0o755", 0),
        ("wit/a.wit", "0", "0o644", 13),
        ("wit/deps", "5", "0o755", 0),
        ("wit/deps/acme", "5", "0o755", 0),
        ("wit/deps/acme/acme.wit", "0", "0o644", 19),
        (PROVENANCE_FILE, "0", "0o644", 321),
    ]


def test_the_order_is_by_kind_before_it_is_by_name() -> None:
    """build-install.md 2.11: manifest, the wasm at the root, files, `wit`, and the envelope last."""
    names = [
        "0.txt",
        "0.wasm",
        "zeta/a",
        "wit/a.wit",
        "z.txt",
        "sub/b.wasm",
        "b.wasm",
        "witty/x",
        "wit.txt",
        "a.wasm",
        "Capsule.toml",
    ]
    members = [Member(path=name, data=MANIFEST) for name in names]
    files = [name for name, kind, *_ in listing(write_archive(members)) if kind == "0"]
    assert files == [
        "Capsule.toml", "0.wasm", "a.wasm", "b.wasm", "0.txt",
        "sub/b.wasm", "wit.txt", "witty/x", "z.txt", "zeta/a",
        "wit/a.wit",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "magic",
    [b"#!", b"\x7fELF", b"MZ", b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe",
     b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf", b"\xbe\xba\xfe\xca", b"\xbf\xba\xfe\xca"],
)  # fmt: skip
def test_programs_are_known_by_their_first_bytes(magic: bytes) -> None:
    assert entry_of(Member(path="x", data=magic + b"rest")).executable
    assert not entry_of(Member(path="x", data=magic[:-1])).executable
    assert not entry_of(Member(path="Capsule.toml", data=magic)).executable


def test_a_name_of_100_bytes_stands_in_its_header_and_a_longer_one_before_it() -> None:
    for length, blocks in ((100, 1), (101, 3)):
        name = "assets/" + "n" * (length - 7)
        tar_bytes = gzip.decompress(
            write_archive([Member(path="Capsule.toml", data=MANIFEST), Member(path=name, data=b"")])
        )
        assert len(tar_bytes) == (2 + blocks + 2) * 512
        assert [one.path for one in scan_archive(packed(tar_bytes)).entries] == ["Capsule.toml", name]


def test_every_entry_has_the_fixed_owner_and_time() -> None:
    with tarfile.open(fileobj=io.BytesIO(write_archive(signed(SAMPLE)))) as reader:
        marks = {(one.uid, one.gid, one.uname, one.gname, one.mtime) for one in reader}
    assert marks == {(0, 0, "", "", 1153704088)}


def test_arc_09_the_bytes_hang_on_nothing_but_the_members() -> None:
    for compression in COMPRESSIONS:
        first = write_archive(signed(SAMPLE), compression=compression)
        assert write_archive(reversed(signed(SAMPLE)), compression=compression) == first


def test_the_packing_is_the_published_one() -> None:
    """build-install.md 2.11: level 6, raw deflate between a bare header and the trailer."""
    data = write_archive(SAMPLE)
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    assert data[10:-8] == packer.compress(gzip.decompress(data)) + packer.flush()


def test_the_gzip_header_tells_nothing() -> None:
    assert write_archive(SAMPLE)[:10].hex() == "1f8b08000000000000ff"


@pytest.mark.parametrize("name", ["plain", "signed"])
def test_golden_archives_are_read_and_written_alike(name: str) -> None:
    """Never regenerated: what was packed once must be read for ever, and packing must give the same tar."""
    members = signed(SAMPLE) if name == "signed" else SAMPLE
    for compression, suffix in (("gzip", "capsule"), ("zstd", "zst.capsule")):
        data = (GOLDEN / f"{name}.{suffix}").read_bytes()
        inventory = scan(data)
        assert inventory.compression == compression
        assert {one.path: one for one in inventory.entries} == {one.path: entry_of(one) for one in members}
        assert (inventory.provenance is not None) == (name == "signed")
    unpacked = gzip.decompress((GOLDEN / f"{name}.capsule").read_bytes())
    assert gzip.decompress(write_archive(members)) == unpacked


def test_the_inventory_of_a_signed_archive() -> None:
    data = write_archive(signed(SAMPLE))
    inventory = scan(data)
    assert inventory.manifest == MANIFEST
    assert inventory.directories == ("wit", "wit/deps", "wit/deps/acme")
    assert inventory.size_bytes == len(data)
    assert inventory.provenance is not None
    assert inventory.provenance.content_digest == inventory.content_digest
    assert inventory.entries[0] == ArchiveEntry(
        path="Capsule.toml", size_bytes=len(MANIFEST), digest=bytes_digest(MANIFEST), executable=False
    )


def test_a_signature_over_other_files_is_refused() -> None:
    (*members, provenance) = signed(SAMPLE)
    changed = [one if one.path != "a.wasm" else Member(path="a.wasm", data=b"evil") for one in members]
    with pytest.raises(Corrupt) as caught:
        scan(write_archive([*changed, provenance]))
    assert caught.value.code == "provenance-mismatch"


def test_ins_23_another_wasm_under_the_same_manifest_has_another_digest() -> None:
    changed = [one if one.path != "a.wasm" else Member(path="a.wasm", data=b"evil") for one in SAMPLE]
    assert scan(write_archive(changed)).content_digest != scan(write_archive(SAMPLE)).content_digest


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_members_come_back_as_they_went_in(compression: Compression) -> None:
    data = write_archive(SAMPLE, compression=compression)
    members = list(iter_members(io.BytesIO(data), scan(data)))
    assert {one.path: one.data for one in members} == {one.path: one.data for one in SAMPLE}
    assert [entry_of(one) for one in members] == list(scan(data).entries)


def test_a_big_member_comes_in_pieces() -> None:
    big = Member(path="assets/big", data=bytes(range(256)) * 1024)
    data = write_archive([*SAMPLE, big])
    sizes = {}
    for one, pieces in iter_member_pieces(io.BytesIO(data), scan(data)):
        sizes[one.path] = [len(piece) for piece in pieces]
    assert sum(sizes["assets/big"]) == len(big.data)
    assert max(sizes["assets/big"]) <= 64 * 1024


def test_pieces_that_the_caller_leaves_are_checked_all_the_same() -> None:
    data = write_archive(SAMPLE)
    paths = [one.path for one, _ in iter_member_pieces(io.BytesIO(data), scan(data))]
    assert paths == [one.path for one in scan(data).entries]
    other = write_archive(
        [one if one.path != "a.wasm" else Member(path="a.wasm", data=b"evilevil") for one in SAMPLE]
    )
    with pytest.raises(Corrupt):
        list(iter_member_pieces(io.BytesIO(other), scan(data)))


@pytest.mark.parametrize(
    "other",
    [
        [Member(path="Capsule.toml", data=MANIFEST), Member(path="assets/x", data=b"old")],
        [Member(path="Capsule.toml", data=MANIFEST), Member(path="assets/x", data=b"newer")],
        [Member(path="Capsule.toml", data=MANIFEST), Member(path="assets/y", data=b"new")],
        [Member(path="Capsule.toml", data=MANIFEST)],
        [
            Member(path="Capsule.toml", data=MANIFEST),
            Member(path="assets/x", data=b"new"),
            Member(path="assets/y", data=b"new"),
        ],
    ],
    ids=["bytes", "size", "name", "missing", "additional"],
)
def test_a_file_that_changes_between_the_passes_is_refused(other: list[Member]) -> None:
    seen = scan(
        write_archive([Member(path="Capsule.toml", data=MANIFEST), Member(path="assets/x", data=b"new")])
    )
    with pytest.raises(Corrupt) as caught:
        list(iter_members(io.BytesIO(write_archive(other)), seen))
    assert caught.value.code == "archive-changed"


@pytest.mark.parametrize("format_number", [tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_archives_of_other_writers_are_read(format_number: int) -> None:
    deep = "assets/" + "d" * 60 + "/" + "e" * 60 + "/f.txt"
    inventory = scan_archive(by_tarfile(format_number, "x.wasm", deep))
    assert [one.path for one in inventory.entries] == ["Capsule.toml", "x.wasm", deep]


def test_a_dot_in_front_is_dropped() -> None:
    inventory = scan_archive(
        capsule(
            entry(b"./", flag=b"5", mode=0o755),
            entry(b"./Capsule.toml", MANIFEST),
            entry(b"./wit/", flag=b"5", mode=0o755),
            entry(b"./wit/./a.wit", b"x"),
            manifest=False,
        )
    )
    assert [one.path for one in inventory.entries] == ["Capsule.toml", "wit/a.wit"]
    assert inventory.directories == ("wit",)


def test_a_folder_after_its_files_is_no_duplicate() -> None:
    parts = (entry(b"wit/a.wit", b"x"), entry(b"wit", flag=b"5"))
    assert scan_archive(capsule(*parts)).directories == ("wit",)


def test_optional_gzip_header_fields_are_stepped_over() -> None:
    plain = tar(long_entry(b"assets/" + b"x" * 120, b"data"))
    data = gzip_with_fields(plain, name=b"a.tar", comment=b"made by hand", extra=b"xy\x02\x00ab")
    assert scan(data).entries == scan_archive(packed(plain)).entries


@pytest.mark.parametrize(
    ("member", "code"),
    [
        (Member(path="../x", data=b""), "archive-path"),
        (Member(path="./x", data=b""), "archive-path"),
        (Member(path="a\\b", data=b""), "archive-path"),
        (Member(path="x\udc80", data=b""), "archive-path"),
        (Member(path="capsule.toml", data=b""), "archive-second-manifest"),
        (Member(path="meta.json", data=b""), "archive-reserved"),
        (Member(path="ASSETS/run", data=b""), "archive-collision"),
        (Member(path="assets/run", data=b""), "archive-duplicate"),
        (Member(path="assets/run/x", data=b""), "archive-duplicate"),
    ],
)
def test_nothing_is_written_that_could_not_be_read(member: Member, code: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        write_archive([*SAMPLE, member])
    assert caught.value.code == code


def test_nothing_is_written_that_would_be_taken_for_a_bomb() -> None:
    with pytest.raises(LimitExceeded) as caught:
        write_archive([*SAMPLE, Member(path="assets/zeros", data=bytes(2 * 1024 * 1024))])
    assert caught.value.code == "archive-bomb"
    many = [Member(path=f"assets/{number}", data=b"") for number in range(10_000)]
    with pytest.raises(LimitExceeded) as caught:
        write_archive([SAMPLE[7], *many])
    assert caught.value.code == "archive-too-many-entries"


def test_an_archive_needs_a_manifest() -> None:
    with pytest.raises(InvalidInput) as caught:
        write_archive([Member(path="a.wasm", data=b"")])
    assert caught.value.code == "archive-no-manifest"


NAME = st.sampled_from(["a", "b", "run", "x.wit", "é", "工具", "a-b", "n" * 60])
PATH = st.lists(NAME, min_size=1, max_size=3).map("/".join)
MEMBER = st.builds(
    Member,
    path=st.builds("{}/{}".format, st.sampled_from(["assets", "wit", "skills/s"]), PATH)
    | st.sampled_from(["a.wasm", "b.wasm", PROVENANCE_FILE + ".txt"]),
    data=st.binary(max_size=1200) | st.sampled_from([b"#!/bin/sh", b"\x7fELF\x02", b"MZ", b""]),
    executable=st.booleans(),
)


def without_conflicts(members: list[Member]) -> list[Member]:
    """The members of which none is a folder of another."""
    kept: dict[str, Member] = {}
    for one in members:
        if not any(one.path.startswith(f"{path}/") or path.startswith(f"{one.path}/") for path in kept):
            kept[one.path] = one
    return [Member(path="Capsule.toml", data=MANIFEST), *kept.values()]


@given(members=st.lists(MEMBER, max_size=8).map(without_conflicts), compression=st.sampled_from(COMPRESSIONS))
@settings(deadline=None)
def test_scan_of_write_is_the_same(members: list[Member], compression: Compression) -> None:
    data = write_archive(members, compression=compression)
    inventory = scan(data)
    assert {one.path: one for one in inventory.entries} == {one.path: entry_of(one) for one in members}
    again = list(iter_members(io.BytesIO(data), inventory))
    assert write_archive(again, compression=compression, directories=inventory.directories) == data


@pytest.mark.slow
@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_flipped_bit_is_refused_or_changes_nothing(compression: Compression) -> None:
    data = write_archive(signed(SAMPLE), compression=compression)
    good = scan(data)
    accepted = 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = scan(bytes(flipped))
        except AosError:
            continue
        accepted += 1
        assert (found.entries, found.directories, found.provenance) == (
            good.entries,
            good.directories,
            good.provenance,
        )
    # What is left are bits that say nothing: the gzip header's time and system, spare bits of the packing.
    assert accepted < 0.02 * 8 * len(data) + 60


@given(data=st.binary(max_size=400), start=st.sampled_from([b"", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"]))
@settings(deadline=None)
def test_garbage_gives_only_our_errors(data: bytes, start: bytes) -> None:
    with pytest.raises(AosError):
        scan(start + data)


@given(data=st.binary(max_size=1500), cut=st.integers(min_value=0, max_value=3000))
@settings(deadline=None)
def test_garbage_inside_a_good_packing_gives_only_our_errors(data: bytes, cut: int) -> None:
    good = tar(entry(b"assets/x", b"y" * 600))
    with pytest.raises(AosError):
        scan_archive(packed(data))
    mixed = good[:cut] + data + good[cut + len(data) :]
    try:
        scan_archive(packed(mixed))
    except AosError as error:
        assert error.hint
