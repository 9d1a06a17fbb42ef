"""Every hostile archive by name: each is refused with its reason, in a small time and a small memory."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import tracemalloc
import unicodedata
import zlib
from collections.abc import Iterator

import pytest
import zstandard

from aos_runtime.capsule.archive import Limits, Member, scan_archive, write_archive
from aos_runtime.capsule.archive_limits import check_unpacked
from aos_runtime.capsule.archive_names import NameWall
from aos_runtime.errors import AosError, Corrupt, InvalidInput, LimitExceeded
from tests.support.tar_forms import (
    MANIFEST,
    block,
    by_tarfile,
    capsule,
    entry,
    gzip_with_fields,
    long_entry,
    packed,
    tar,
    with_sum,
)

MIB = 1024 * 1024
GOOD = write_archive(
    [Member(path="Capsule.toml", data=MANIFEST), Member(path="assets/x", data=bytes(range(256)) * 9)]
)


def refusal(file: io.BytesIO | bytes, limits: Limits | None = None) -> AosError:
    """The error that scanning gives."""
    stream = io.BytesIO(file) if isinstance(file, bytes) else file
    with pytest.raises(AosError) as caught:
        scan_archive(stream, limits=limits or Limits())
    return caught.value


def told(error: AosError) -> tuple[type[AosError], str, str]:
    return type(error), error.code, error.message


ESCAPES = [
    (b"../../.bashrc", "leaves the capsule's folder"),
    (b"/tmp/pwned", "is absolute"),
    (b"wit/../../x", "leaves the capsule's folder"),
    (b"C:\\x", "is absolute"),
    (b".\\..\\x", "has a backslash"),
    (b"\\\\server\\share", "has a backslash"),
    (b"a/..", "leaves the capsule's folder"),
    (b"a//b", "has an empty segment"),
    (b"a\x1b[2J", "has a control or invisible character"),
    ("Cap\u200dsule.toml".encode(), "has a control or invisible character"),
    (b"assets/\xff", "is not UTF-8"),
    (b"assets/CON", "is a device name on Windows"),
    (b"assets/lpt1.txt", "is a device name on Windows"),
    (b"assets/x.", "has a segment that ends in a dot or a space"),
    (b"Capsule.toml/", "has an empty segment"),
    (b"", "is empty"),
]


@pytest.mark.parametrize(("name", "problem"), ESCAPES, ids=[repr(name) for name, _ in ESCAPES])
def test_arc_01_paths_that_leave_or_mislead(name: bytes, problem: str) -> None:
    error = refusal(capsule(entry(name, b"x")))
    assert told(error)[:2] == (InvalidInput, "archive-path")
    shown = ascii(name.decode("utf-8", "backslashreplace"))
    assert error.message == f"the archive's entry {shown} {problem}"


def test_arc_01_a_name_of_300_folders() -> None:
    error = refusal(capsule(long_entry(b"a/" * 300 + b"x", b"x")))
    assert error.code == "archive-path"
    assert error.message.endswith("is deeper than 32 folders")
    assert len(error.message) < 200


def test_arc_01_a_name_longer_than_any_path_is_not_even_read() -> None:
    error = refusal(capsule(long_entry(b"a/" * 100_000, b"x")))
    assert told(error) == (
        InvalidInput,
        "archive-path",
        f"the archive has an entry with an empty or overlong name, starting {'a/' * 32!r}",
    )


def test_arc_01_of_a_long_name_120_characters_are_shown_and_1024_kept() -> None:
    whole = refusal(capsule(long_entry(b"x" * 119 + b"/", b"x")))
    assert whole.message == f"the archive's entry '{'x' * 119}/' has an empty segment"
    cut = refusal(capsule(long_entry(b"x" * 120 + b"/", b"x")))
    assert cut.message == f"the archive's entry '{'x' * 120}\\u2026' has an empty segment"
    long = refusal(capsule(long_entry(b"\xff" * 1024, b"x")))
    assert long.context == {"entry": ("\\xff" * 1024)[:1024]}


def test_arc_01_a_long_name_may_be_as_long_as_a_path_and_no_longer() -> None:
    segments = b"/".join([b"x" * 255] * 3 + [b"y" * 254, b"z"])
    assert len(segments) == 1024
    assert scan_archive(capsule(long_entry(segments, b"x"))).entries[1].path == segments.decode()
    error = refusal(capsule(long_entry(segments + b"z", b"x")))
    assert error.message.startswith("the archive has an entry with an empty or overlong name, starting 'xxx")
    assert error.context == {"size_bytes": 1026}
    empty = refusal(capsule(entry(b"././@LongLink", b"\0", flag=b"L"), entry(b"x")))
    assert empty.message == "the archive has an entry with an empty or overlong name, starting '\\x00'"
    assert empty.context == {"size_bytes": 1}
    binary = refusal(capsule(long_entry(b"\xff" * 2000, b"x")))
    assert binary.message.endswith("starting '" + "\\\\xff" * 64 + "'")


@pytest.mark.parametrize("data", [b"ab", b"a\0b", b"a\0\0"])
def test_a_long_name_ends_in_its_only_nul(data: bytes) -> None:
    error = refusal(capsule(entry(b"././@LongLink", data, flag=b"L"), entry(b"x")))
    assert error.message == "truncated or corrupt archive: a long name does not end in its only NUL"


def test_arc_01_a_name_of_one_byte_is_a_name() -> None:
    assert scan_archive(capsule(long_entry(b"x", b"1"))).entries[1].path == "x"


def test_arc_05_a_collision_names_both() -> None:
    error = refusal(capsule(entry(b"A", b""), entry(b"a", b"")))
    assert error.context == {"entries": ["A", "a"]}


def test_names_that_are_not_utf_8_are_shown_all_the_same() -> None:
    assert refusal(capsule(block(b"d\xff", flag=b"2"))).message == "the archive's entry 'd\\\\xff' is a link"


def test_arc_01_ustar_prefixes_count() -> None:
    error = refusal(capsule(entry(b"x", magic=b"ustar\x0000", prefix=b"..")))
    assert error.message == "the archive's entry '../x' leaves the capsule's folder"


def test_a_folder_that_leaves_is_refused_too() -> None:
    assert refusal(capsule(entry(b"../d/", flag=b"5"))).code == "archive-path"


LINKS = [
    [block(b"d", flag=b"2", link=b"/tmp"), entry(b"d/x", b"evil")],
    [block(b"h", flag=b"1", link=b"Capsule.toml")],
    [block(b"", flag=b"2", link=b"")],
    [entry(b"d/x", b"evil"), block(b"d", flag=b"2", link=b"/tmp")],
    [entry(b"././@LongLink", b"/tmp\0", flag=b"K"), block(b"d", flag=b"2")],
]


@pytest.mark.parametrize("parts", LINKS, ids=["symbolic", "hard", "without names", "late", "long"])
def test_arc_02_links_of_every_kind(parts: list[bytes]) -> None:
    error = refusal(capsule(*parts))
    assert told(error)[:2] == (InvalidInput, "archive-link")
    assert error.message.endswith("is a link")


def test_arc_02_a_long_chain_of_links() -> None:
    chain = [block(b"l%d" % number, flag=b"2", link=b"l%d" % (number + 1)) for number in range(500)]
    assert refusal(capsule(*chain)).message == "the archive's entry 'l0' is a link"


def test_arc_03_a_bad_entry_after_the_good_ones_refuses_all() -> None:
    good = [entry(b"assets/%d" % number, b"x") for number in range(50)]
    assert refusal(capsule(*good, block(b"late", flag=b"2", link=b"/"))).code == "archive-link"


def test_arc_03_pax_overrides_are_refused() -> None:
    record = b"30 linkpath=../../../etc/passwd\n"
    for flag in (b"x", b"g", b"X"):
        error = refusal(capsule(entry(b"pax", record, flag=flag), entry(b"assets/x", b"")))
        assert told(error) == (
            InvalidInput,
            "archive-pax",
            "the archive's entry 'pax' is a pax record, which can override what a header says",
        )
    assert refusal(by_tarfile(tarfile.PAX_FORMAT, "x" * 150)).code == "archive-pax"


@pytest.mark.parametrize("flag", [b"3", b"4", b"6", b"7", b"D", b"M", b"V", b"A", b"\xff"])
def test_special_files_are_refused(flag: bytes) -> None:
    error = refusal(capsule(block(b"dev", flag=flag)))
    assert told(error) == (
        InvalidInput,
        "archive-special",
        "the archive's entry 'dev' is neither a file nor a folder",
    )


def test_sparse_files_are_refused() -> None:
    assert told(refusal(capsule(block(b"holes", flag=b"S")))) == (
        InvalidInput,
        "archive-sparse",
        "the archive's entry 'holes' is a sparse file",
    )


def test_arc_05_two_manifests() -> None:
    other = b'[package]\nname = "a"\nversion = "0.1.0"\n[capabilities]\nhost_process = ["sh"]\n'
    for name in (b"Capsule.toml", b"./Capsule.toml", b".//Capsule.toml"[:2] + b"./Capsule.toml"):
        assert told(refusal(capsule(entry(name, other)))) == (
            InvalidInput,
            "archive-duplicate",
            "the archive has two entries for 'Capsule.toml'",
        )


@pytest.mark.parametrize("name", ["capsule.TOML", "sub/Capsule.toml", "assets/x/CAPSULE.TOML"])
def test_arc_05_ins_28_a_second_manifest_in_disguise(name: str) -> None:
    assert told(refusal(capsule(entry(name.encode(), b"x")))) == (
        InvalidInput,
        "archive-second-manifest",
        f"the archive's entry {name!r} looks like a second manifest",
    )


COLLISIONS = [
    ("A.wasm", "a.wasm"),
    (unicodedata.normalize("NFC", "assets/é"), unicodedata.normalize("NFD", "assets/é")),
    ("assets/straße", "assets/STRASSE"),
    ("Assets/x", "assets/y"),
    ("assets/a/x", "assets/A"),
]


@pytest.mark.parametrize(
    ("one", "other"), COLLISIONS, ids=["case", "form", "folding", "folders", "folder and file"]
)
def test_arc_05_names_that_collide(one: str, other: str) -> None:
    error = refusal(capsule(entry(one.encode(), b""), entry(other.encode(), b"")))
    assert told(error)[:2] == (InvalidInput, "archive-collision")
    assert error.message.endswith("are one name on some file systems")


@pytest.mark.parametrize(
    "parts",
    [
        [entry(b"assets/x"), entry(b"assets/x")],
        [entry(b"wit/", flag=b"5"), entry(b"wit", flag=b"5")],
        [entry(b"x"), entry(b"x/y")],
        [entry(b"x/y"), entry(b"x")],
        [entry(b"x", flag=b"5"), entry(b"x")],
        [entry(b"x"), entry(b"x", flag=b"5")],
    ],
)
def test_arc_05_two_entries_of_one_name(parts: list[bytes]) -> None:
    assert refusal(capsule(*parts)).code == "archive-duplicate"


@pytest.mark.parametrize("name", [b"meta.json", b"authority.json"])
def test_names_that_only_the_store_writes(name: bytes) -> None:
    assert told(refusal(capsule(entry(name, b"{}")))) == (
        InvalidInput,
        "archive-reserved",
        f"the archive's entry {name.decode()!r} has a name that only the runtime writes",
    )
    assert scan_archive(capsule(entry(b"assets/" + name, b"{}"))).entries


def test_no_manifest_at_all() -> None:
    assert refusal(capsule(entry(b"a.wasm"), manifest=False)).code == "archive-no-manifest"
    assert refusal(capsule(manifest=False)).code == "archive-no-manifest"


# Damage


def test_arc_12_cut_off_anywhere() -> None:
    for size_bytes in range(2, len(GOOD)):
        error = refusal(GOOD[:size_bytes])
        assert told(error)[:2] == (Corrupt, "archive-damaged")
        assert error.message.startswith("truncated or corrupt archive: ")


def test_arc_12_cut_at_60_percent_names_the_place() -> None:
    noise = b"".join(
        zlib.crc32(bytes((number % 256, number // 256))).to_bytes(4, "little") for number in range(4000)
    )
    data = write_archive([Member(path="Capsule.toml", data=MANIFEST), Member(path="a.wasm", data=noise)])
    cut = data[: len(data) * 6 // 10]
    error = refusal(cut)
    assert error.message == (
        f"truncated or corrupt archive: the file ends at byte {len(cut)}, before its gzip stream does"
    )
    inner = refusal(packed(gzip.decompress(data)[: 512 * 10]))
    assert inner.message == "truncated or corrupt archive: it ends at byte 5120, inside a.wasm"
    assert inner.context == {"offset": 5120}


def test_arc_12_a_flipped_byte_in_the_middle() -> None:
    data = bytearray(GOOD)
    data[len(data) // 2] ^= 0x55
    assert told(refusal(bytes(data)))[:2] == (Corrupt, "archive-damaged")


def test_arc_12_damage_is_told_as_damage_even_where_it_looks_hostile() -> None:
    """A flipped byte in a stored block makes a good name climb out of the folder."""
    packer = zlib.compressobj(0, zlib.DEFLATED, -15)
    plain = tar(entry(b"aa/x", b"y"))
    good = (
        GOOD[:10]
        + packer.compress(plain)
        + packer.flush()
        + struct.pack("<II", zlib.crc32(plain), len(plain))
    )
    assert scan_archive(io.BytesIO(good)).entries
    bad = good.replace(b"aa/x", b"../x").replace(
        block(b"aa/x", size=1)[148:156], block(b"../x", size=1)[148:156]
    )
    assert told(refusal(bad)) == (
        Corrupt,
        "archive-damaged",
        "truncated or corrupt archive: its contents do not match the gzip checksum and length",
    )


def test_arc_12_every_flipped_byte_is_told_as_damage() -> None:
    for at in range(10, len(GOOD)):
        data = bytearray(GOOD)
        data[at] ^= 0xFF
        assert refusal(bytes(data)).code == "archive-damaged"


def test_arc_12_an_empty_file() -> None:
    assert told(refusal(b"")) == (
        Corrupt,
        "archive-damaged",
        "truncated or corrupt archive: the file is empty",
    )


@pytest.mark.parametrize(
    ("data", "seen", "hint"),
    [
        (b"Not Found", "`Not F`", "a saved web page: download the file itself"),
        (
            b"<!DOCTYPE html><html><body>Sign in</body></html>",
            "`<!DOC`",
            "a saved web page: download the file itself",
        ),
        (b"PK\x03\x04\x14\x00", "50 4b 03 04 14", "build it with `aos capsule build`"),
        (b"\x1f", "1f", "build it with `aos capsule build`"),
        (entry(b"Capsule.toml", MANIFEST), "`Capsu`", "build it with `aos capsule build`"),
    ],
    ids=["saved 404", "login page", "zip", "one byte", "bare tar"],
)
def test_arc_13_what_is_no_archive_is_told_as_what_it_is(data: bytes, seen: str, hint: str) -> None:
    error = refusal(data)
    assert told(error) == (InvalidInput, "archive-not-gzip", f"not a gzip archive; starts with {seen}")
    assert error.hint == hint


def test_ins_28_a_wrong_checksum_or_length() -> None:
    for at in (-8, -4):
        data = bytearray(GOOD)
        data[at] ^= 1
        assert told(refusal(bytes(data))) == (
            Corrupt,
            "archive-damaged",
            "truncated or corrupt archive: its contents do not match the gzip checksum and length",
        )


@pytest.mark.parametrize(
    ("start", "seen"), [(b"a\x7fbcd", "61 7f 62 63 64"), (b"\xc3\xa9abc", "c3 a9 61 62 63")]
)
def test_arc_13_what_is_no_plain_text_is_shown_in_numbers(start: bytes, seen: str) -> None:
    assert refusal(start).message == f"not a gzip archive; starts with {seen}"


def test_several_gzip_members() -> None:
    assert refusal(GOOD + GOOD).code == "archive-several-members"
    halves = tar()
    split = gzip.compress(halves[:700], mtime=0) + gzip.compress(halves[700:], mtime=0)
    assert refusal(split).code == "archive-several-members"


@pytest.mark.parametrize("rest", [b"\0", b"x", bytes(512), b"\x1f"])
def test_bytes_after_the_gzip_member(rest: bytes) -> None:
    assert told(refusal(GOOD + rest))[:2] == (InvalidInput, "archive-trailing")


def test_bytes_after_the_end_block() -> None:
    assert refusal(packed(tar() + entry(b"hidden", b"x"))).code == "archive-trailing-entries"
    assert scan_archive(packed(tar() + bytes(8192))).entries
    late = refusal(packed(tar() + bytes(3 * 64 * 1024) + b"x"))
    assert late.code == "archive-trailing-entries"


def test_an_end_block_without_its_second() -> None:
    assert refusal(packed(tar()[:-512])).code == "archive-damaged"
    assert refusal(packed(tar()[:-1024])).code == "archive-damaged"


def broken_header(**at: bytes) -> bytes:
    head = bytearray(block(b"assets/x", size=3))
    for name, value in at.items():
        start = {"size": 124, "mode": 100, "magic": 257, "sum": 148, "prefix": 345, "name": 0}[name]
        head[start : start + len(value)] = value
    return bytes(head) if "sum" in at else with_sum(head)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (broken_header(sum=b"0000001\0"), "archive-damaged"),
        (broken_header(sum=b"xxxxxxx\0"), "archive-damaged"),
        (broken_header(size=b"\x80" + bytes(11)), "archive-damaged"),
        (broken_header(size=b"-0000000003\0"), "archive-damaged"),
        (broken_header(size=b"0x3\0\0\0\0\0\0\0\0\0"), "archive-damaged"),
        (broken_header(size=b"            "), "archive-damaged"),
        (broken_header(mode=b"rw-r--r-"), "archive-damaged"),
        (broken_header(magic=bytes(8)), "archive-header"),
        (broken_header(magic=b"ustar\x0011"), "archive-header"),
        (broken_header(prefix=b"../.."), "archive-header"),
        (broken_header(name=b"a\0b"), "archive-path"),
    ],
)
def test_broken_headers(head: bytes, code: str) -> None:
    assert refusal(capsule(head, b"abc" + bytes(509))).code == code


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (
            broken_header(sum=b"xxxxxxx\0"),
            "the checksum in the header at byte 1024 is not a plain octal number",
        ),
        (broken_header(sum=b"x"), "the checksum in the header at byte 1024 is not a plain octal number"),
        (broken_header(size=b"x"), "the size in the header at byte 1024 is not a plain octal number"),
        (broken_header(mode=b"x"), "the mode in the header at byte 1024 is not a plain octal number"),
        (broken_header(sum=b"0000001\0"), "the header at byte 1024 does not match its checksum"),
    ],
)
def test_a_broken_header_says_what_is_broken(head: bytes, what: str) -> None:
    assert refusal(capsule(head, b"abc" + bytes(509))).message == f"truncated or corrupt archive: {what}"


@pytest.mark.parametrize("at", [345, 346, 400, 499])
def test_a_gnu_header_has_nothing_where_ustar_has_its_prefix(at: int) -> None:
    head = bytearray(block(b"assets/x", size=3))
    head[at] = ord("x")
    assert refusal(capsule(with_sum(head), b"abc" + bytes(509))).code == "archive-header"


@pytest.mark.parametrize(
    ("mode", "is_program"),
    [(0o644, False), (0o100, True), (0o010, True), (0o001, True), (0o666, False), (0o6644, False)],
)
def test_who_may_run_a_file_makes_it_a_program(mode: int, is_program: bool) -> None:
    found = scan_archive(capsule(entry(b"assets/x", b"1", mode=mode))).entries[1]
    assert found.executable is is_program
    assert scan_archive(capsule(entry(b"assets/x", b"1", mode=mode, flag=b"\0"))).entries[1] == found


def test_every_byte_of_a_header_counts_in_its_checksum() -> None:
    good = bytearray(block(b"assets/x", size=3))
    for at in (0, 147, 156, 511):
        changed = bytearray(good)
        changed[at] ^= 1
        assert refusal(capsule(bytes(changed), b"abc" + bytes(509))).code in (
            "archive-damaged",
            "archive-path",
        )
    spaced = bytearray(good)
    spaced[148:156] = b" %5o\0 " % sum(good[:148] + b" " * 8 + good[156:])
    assert scan_archive(capsule(bytes(spaced), b"abc" + bytes(509))).entries


def test_a_size_that_is_a_lie_runs_into_the_end() -> None:
    assert refusal(capsule(block(b"assets/x", size=8**11 - 1))).code == "archive-damaged"


@pytest.mark.parametrize(
    "parts",
    [
        [entry(b"././@LongLink", b"a", flag=b"L"), entry(b"x")],
        [entry(b"././@LongLink", b"a\0b\0", flag=b"L"), entry(b"x")],
        [entry(b"././@LongLink", b"a\0", flag=b"L")],
        [entry(b"././@LongLink", b"a\0", flag=b"L"), entry(b"././@LongLink", b"b\0", flag=b"L"), entry(b"x")],
        [entry(b"d", b"inside", flag=b"5")],
        [entry(b".", b"root")],
    ],
    ids=["no name", "two names", "no follower", "two long names", "folder with contents", "file at the root"],
)
def test_entries_that_make_no_sense(parts: list[bytes]) -> None:
    assert refusal(capsule(*parts)).code in ("archive-damaged", "archive-path")


def test_contents_may_not_hide_in_the_padding() -> None:
    assert (
        refusal(capsule(block(b"assets/x", size=1) + b"x" + b"hidden" + bytes(505))).code == "archive-damaged"
    )


@pytest.mark.parametrize(
    "head",
    [
        b"\x1f\x8b\x07" + bytes(7),
        b"\x1f\x8b\x08\xe0" + bytes(6),
        b"\x1f\x8b\x08\x08" + bytes(6) + b"never ends",
        b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff",
        gzip_with_fields(tar(), name=b"x")[:12] + b"\x00\x00\x00\x00",
    ],
    ids=["method", "reserved flags", "endless name", "endless field", "header checksum"],
)
def test_broken_gzip_headers(head: bytes) -> None:
    assert refusal(head + GOOD[10:]).code == "archive-damaged"


def test_gzip_headers_end_where_their_fields_end() -> None:
    plain = gzip.decompress(GOOD)
    for fields in ({"name": b"a"}, {"comment": b"c"}, {"extra": b"xy"}, {"name": b"a", "extra": b"x" * 300}):
        assert scan_archive(io.BytesIO(gzip_with_fields(plain, **fields))).entries
    text = bytearray(GOOD)
    text[3] = 0x01  # the writer thinks that it is text, which changes nothing
    assert scan_archive(io.BytesIO(bytes(text))).entries
    for endless in (b"\x1f\x8b\x08\x08" + bytes(6) + b"never", b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff"):
        assert refusal(endless).message == "truncated or corrupt archive: the gzip header does not end"
    assert refusal(GOOD[:10] + b"\x07" * 20).message == (
        "truncated or corrupt archive: the gzip stream is broken after byte 10 of the file"
    )
    whole = gzip_with_fields(plain, name=b"x")
    wrong = bytearray(whole)
    wrong[12] ^= 1  # the header's checksum follows ten bytes and `x\\0`
    assert refusal(bytes(wrong)).message == (
        "truncated or corrupt archive: the gzip header does not match its checksum"
    )
    assert (
        refusal(GOOD[:9]).message
        == "truncated or corrupt archive: the file ends at byte 9, inside its gzip header"
    )
    assert refusal(GOOD[:10]).message == (
        "truncated or corrupt archive: the file ends at byte 10, before its gzip stream does"
    )


# Limits


def test_the_published_limits() -> None:
    assert Limits() == Limits(
        packed_bytes=52_428_800,
        unpacked_bytes=536_870_912,
        entries=10_000,
        ratio=100,
        ratio_free_bytes=1_048_576,
        window_bytes=8_388_608,
    )


def test_what_is_exactly_at_a_limit_is_taken() -> None:
    unpacked = len(gzip.decompress(GOOD))
    exact = {"packed_bytes": len(GOOD), "unpacked_bytes": unpacked, "entries": 2}
    assert scan_archive(io.BytesIO(GOOD), limits=Limits(**exact)).entries
    for name, code in (
        ("packed_bytes", "archive-too-large"),
        ("unpacked_bytes", "archive-unpacked-too-large"),
        ("entries", "archive-too-many-entries"),
    ):
        assert refusal(GOOD, Limits(**{**exact, name: exact[name] - 1})).code == code


def test_a_bomb_is_what_is_over_the_ratio_and_over_what_is_free() -> None:
    check_unpacked(1000, 10, Limits(ratio=100, ratio_free_bytes=999))
    check_unpacked(1000, 1, Limits(ratio=100, ratio_free_bytes=1000))
    with pytest.raises(LimitExceeded) as caught:
        check_unpacked(1001, 10, Limits(ratio=100, ratio_free_bytes=1000))
    assert (caught.value.code, caught.value.context) == ("archive-bomb", {"packed_bytes": 10})
    with pytest.raises(LimitExceeded) as caught:
        check_unpacked(1001, 10, Limits(unpacked_bytes=1000, ratio=1000))
    assert caught.value.context == {"limit_bytes": 1000}


def test_a_manifest_and_an_envelope_may_be_as_large_as_they_may_be() -> None:
    whole = MANIFEST + b"#" * (256 * 1024 - len(MANIFEST))
    assert scan_archive(packed(tar(entry(b"Capsule.toml", whole), manifest=False))).manifest == whole
    over = packed(tar(entry(b"Capsule.toml", whole + b"#"), manifest=False))
    assert refusal(over).code == "archive-file-too-large"


def test_a_limit_is_told_with_what_was_found() -> None:
    assert refusal(GOOD, Limits(packed_bytes=len(GOOD) - 1)).context == {"size_bytes": len(GOOD)}
    assert refusal(GOOD, Limits(entries=1)).context == {"limit": 1}
    manifest = refusal(capsule(block(b"Capsule.toml", size=MIB), manifest=False))
    assert manifest.message == "the archive's Capsule.toml is larger than 256 KiB"
    assert manifest.context == {"size_bytes": MIB}


def test_folders_that_no_entry_names_count_twice_the_entries_at_most() -> None:
    wall = NameWall(2)
    wall.admit("a/b/c/d", "file")
    with pytest.raises(LimitExceeded) as caught:
        wall.admit("e", "file")
    assert caught.value.message == "the archive has more than 4 files and folders"
    assert caught.value.context == {"limit": 4}


def test_more_than_50_mib_is_refused_unread() -> None:
    class Unread(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise AssertionError("it was read")

        def seek(self, offset: int, whence: int = 0, /) -> int:
            return 50 * MIB + 1

    assert told(refusal(Unread())) == (
        LimitExceeded,
        "archive-too-large",
        "the archive is larger than 50 MiB",
    )


def zeros(size_bytes: int) -> io.BytesIO:
    """A bomb, made without holding what it unpacks to."""
    head = tar(block(b"assets/zeros", size=size_bytes))[:-1024]
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    check = zlib.crc32(head)
    parts = [packer.compress(head)]
    for _ in range(size_bytes // MIB):
        check = zlib.crc32(bytes(MIB), check)
        parts.append(packer.compress(bytes(MIB)))
    parts.append(packer.flush())
    trailer = struct.pack("<II", check, (len(head) + size_bytes) & 0xFFFFFFFF)
    return io.BytesIO(GOOD[:10] + b"".join(parts) + trailer)


def test_ins_28_a_bomb_costs_little() -> None:
    bomb = zeros(64 * MIB)
    tracemalloc.start()
    error = refusal(bomb)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told(error) == (
        LimitExceeded,
        "archive-bomb",
        "the archive unpacks to more than 100 times its size",
    )
    assert peak_bytes < 2 * MIB


def test_the_first_mib_has_no_ratio() -> None:
    assert scan_archive(capsule(entry(b"assets/zeros", bytes(MIB - 4096)))).entries
    assert refusal(capsule(entry(b"assets/zeros", bytes(MIB + 4096)))).code == "archive-bomb"


def test_the_unpacked_limit() -> None:
    error = refusal(zeros(8 * MIB), Limits(unpacked_bytes=4 * MIB, ratio=10_000))
    assert told(error) == (
        LimitExceeded,
        "archive-unpacked-too-large",
        "the archive unpacks to more than 4 MiB",
    )


def test_too_many_entries() -> None:
    many = [entry(b"assets/%d" % number) for number in range(20)]
    assert scan_archive(capsule(*many), limits=Limits(entries=21)).entries
    assert told(refusal(capsule(*many), Limits(entries=20))) == (
        LimitExceeded,
        "archive-too-many-entries",
        "the archive has more than 20 entries",
    )


def test_too_many_folders_that_no_entry_names() -> None:
    many = [long_entry(b"/".join(b"%d-%d" % (number, depth) for depth in range(20))) for number in range(5)]
    assert refusal(capsule(*many), Limits(entries=10)).code == "archive-too-many-names"


def test_a_huge_manifest_or_envelope_is_not_kept() -> None:
    for name in (b"Capsule.toml", b"Capsule.provenance.json"):
        error = refusal(capsule(block(name, size=10 * MIB), manifest=name != b"Capsule.toml"))
        assert (type(error), error.code) == (LimitExceeded, "archive-file-too-large")


# zstd


def zstd(data: bytes, *, write_checksum: bool = True) -> bytes:
    chosen = zstandard.ZstdCompressionParameters.from_level(3, write_checksum=write_checksum)
    return zstandard.ZstdCompressor(compression_params=chosen).compress(data)


def streamed(data: bytes, window_log: int) -> bytes:
    """A frame whose writer did not know the size, and so states the window that was asked for."""
    chosen = zstandard.ZstdCompressionParameters.from_level(3, write_checksum=1, window_log=window_log)
    packer = zstandard.ZstdCompressor(compression_params=chosen).compressobj()
    return packer.compress(data) + packer.flush()


def test_a_zstd_window_over_8_mib() -> None:
    assert told(refusal(streamed(tar(), 24))) == (
        LimitExceeded,
        "archive-window",
        "the zstd window is larger than 8 MiB",
    )
    assert scan_archive(io.BytesIO(streamed(tar(), 23))).compression == "zstd"


def test_a_zstd_frame_that_needs_a_dictionary() -> None:
    samples = [tar(entry(b"assets/%d" % number, b"%d" % number * 50)) for number in range(40)]
    words = zstandard.train_dictionary(4096, samples)
    chosen = zstandard.ZstdCompressionParameters.from_level(3, write_checksum=True, write_dict_id=True)
    data = zstandard.ZstdCompressor(dict_data=words, compression_params=chosen).compress(tar())
    assert refusal(data).code == "archive-zstd-frame"


def test_a_zstd_frame_without_checksum() -> None:
    assert refusal(zstd(tar(), write_checksum=False)).code == "archive-zstd-frame"


@pytest.mark.parametrize("rest", [b"\0", zstd(b"more"), b"\x50\x2a\x4d\x18\x01\0\0\0x"])
def test_bytes_after_the_zstd_frame(rest: bytes) -> None:
    assert refusal(zstd(tar()) + rest).code == "archive-trailing"


def cuts(data: bytes) -> Iterator[bytes]:
    return (data[:size_bytes] for size_bytes in range(4, len(data)))


def test_a_zstd_frame_that_is_cut_off_anywhere() -> None:
    for cut in cuts(zstd(tar())):
        assert refusal(cut).code == "archive-damaged"


def test_a_zstd_bomb() -> None:
    assert refusal(zstd(tar(entry(b"assets/zeros", bytes(4 * MIB))))).code == "archive-bomb"


def test_a_changed_zstd_checksum() -> None:
    data = bytearray(zstd(tar()))
    data[-1] ^= 1
    assert refusal(bytes(data)).code == "archive-damaged"
