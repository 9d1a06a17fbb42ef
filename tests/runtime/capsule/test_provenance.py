"""Who built it: digests, signatures and their published encodings."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.archive import ArchiveEntry, Member, entry_of
from aos_runtime.capsule.provenance import (
    MAX_PROVENANCE_BYTES,
    PROVENANCE_FILE,
    bytes_digest,
    content_digest,
    manifest_digest,
    parse_provenance,
    render_provenance,
    sign_content,
    verify_provenance,
)
from aos_runtime.errors import Corrupt
from aos_runtime.names import Digest

SEED = bytes(range(32))
DIGEST = Digest("ab" * 32)

PUBLISHED = {
    "schema_version": 1,
    "algorithm": "ed25519-blake3-tree-v1",
    "content_digest": "e1d4aefd74635768733307308925e2d4d192b9e191bc094bbd94c7ad762863c8",
    "signer": "NO+/Ez428rxqbUrE71fYKqsEXcoWpvk9wTwAldikzL0=",
    "signature": "dNz4lzXG3DYqEz/bwvjwEE1EMLoR6iMZS2bb4c/Zh1Evu92RVMrNWOki4zFWuvrYYV8kPMBJpVb7YhmgyXpaAQ==",
}
"""An envelope that the published builder 2026.10.1 wrote over a folder of ours."""


def entries(*members: tuple[str, bytes]) -> list[ArchiveEntry]:
    return [entry_of(Member(path=path, data=data)) for path, data in members]


def test_a_published_envelope_verifies_and_renders_to_the_same_bytes() -> None:
    data = json.dumps(PUBLISHED, indent=2).encode()
    provenance = parse_provenance(data)
    assert provenance.signer == "34efbf133e36f2bc6a6d4ac4ef57d82aab045dca16a6f93dc13c0095d8a4ccbd"
    verify_provenance(provenance, Digest(str(PUBLISHED["content_digest"])))
    assert render_provenance(provenance) == data


def test_content_digest_is_the_documented_construction() -> None:
    """Domain, then per file in byte order of paths: length, path, size, digest; the envelope is left out."""
    files = [("a/b", b"hi\n"), ("a-b", b""), ("Capsule.toml", b"x"), (PROVENANCE_FILE, b"ignored")]
    stream = b"astrid:capsule-content:v1\0"
    for path, data in (("Capsule.toml", b"x"), ("a-b", b""), ("a/b", b"hi\n")):
        stream += len(path).to_bytes(8, "little") + path.encode()
        stream += len(data).to_bytes(8, "little") + blake3(data).digest()
    assert content_digest(entries(*files)) == blake3(stream).hexdigest()
    assert content_digest(reversed(entries(*files))) == content_digest(entries(*files))


def test_arc_16_every_boundary_and_every_entry_is_hashed() -> None:
    archives = [
        [("Capsule.toml", b"m"), ("a", b"bc")],
        [("Capsule.toml", b"m"), ("ab", b"c")],
        [("Capsule.toml", b"m"), ("a", b"b"), ("c", b"")],
        [("Capsule.toml", b"m"), ("a", b"b")],
        [("Capsule.toml", b"m"), ("a", b"")],
        [("Capsule.toml", b"m")],
        [("Capsule.toml", b"m"), ("wit/x.wit", b"tail")],
        [("Capsule.toml", b"mtail"), ("wit/x.wit", b"")],
        [("Capsule.toml", b"m"), ("assets/extra", b"")],
        [("Capsule.toml", b"m"), ("assets/extra", b""), ("assets/more", b"")],
    ]
    digests = [content_digest(entries(*files)) for files in archives]
    assert len(set(digests)) == len(archives)


def test_manifest_digest_has_its_own_domain() -> None:
    assert manifest_digest(b"x") == blake3(b"astrid:capsule-manifest:v1\0x").hexdigest()
    assert manifest_digest(b"x") != bytes_digest(b"x")


def test_sign_then_verify() -> None:
    provenance = sign_content(DIGEST, SEED)
    verify_provenance(provenance, DIGEST)
    assert parse_provenance(render_provenance(provenance)) == provenance


def test_a_signature_over_other_content_is_told_as_such() -> None:
    with pytest.raises(Corrupt) as caught:
        verify_provenance(sign_content(DIGEST, SEED), Digest("cd" * 32))
    assert caught.value.code == "provenance-mismatch"


@pytest.mark.parametrize("bit", range(0, 512, 37))
def test_a_flipped_bit_in_the_signature_is_refused(bit: int) -> None:
    provenance = sign_content(DIGEST, SEED)
    signature = bytearray(provenance.signature)
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(Corrupt) as caught:
        verify_provenance(replace(provenance, signature=bytes(signature)), DIGEST)
    assert caught.value.code == "provenance-signature"


def test_another_signer_is_refused() -> None:
    mine, theirs = sign_content(DIGEST, SEED), sign_content(DIGEST, bytes(32))
    with pytest.raises(Corrupt) as caught:
        verify_provenance(replace(mine, signer=theirs.signer), DIGEST)
    assert caught.value.code == "provenance-signature"


def change(**fields: object) -> bytes:
    return json.dumps({**PUBLISHED, **fields}).encode()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "provenance-damaged"),
        (b"\xff", "provenance-damaged"),
        (b"[]", "provenance-damaged"),
        (b"[" * 5000, "provenance-damaged"),
        (b" " * (MAX_PROVENANCE_BYTES + 1), "provenance-damaged"),
        (change()[:-1] + b', "signer": "x"}', "provenance-damaged"),
        (change(schema_version=2), "provenance-unknown"),
        (change(schema_version=True), "provenance-unknown"),
        (change(schema_version="1"), "provenance-unknown"),
        (change(algorithm="none"), "provenance-unknown"),
        (change(content_digest="AB" * 32), "provenance-damaged"),
        (change(content_digest=None), "provenance-damaged"),
        (change(signer="AAAA"), "provenance-damaged"),
        (change(signer="NO+_Ez428rxqbUrE71fYKqsEXcoWpvk9wTwAldikzL0="), "provenance-damaged"),
        (change(signer="NO+/Ez428rxqbUrE71fYKqsEXcoWpvk9wTwAldikzL1="), "provenance-damaged"),
        (change(signature="!"), "provenance-damaged"),
        (change(signature=7), "provenance-damaged"),
    ],
)
def test_envelopes_that_are_refused(data: bytes, code: str) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_provenance(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"{}" + b" " * (64 * 1024 - 1), f"is larger than {MAX_PROVENANCE_BYTES} bytes"),
        (b"nothing", "is not JSON"),
        (change()[:-1] + b', "note": 1, "note": 1}', "is not JSON"),
        (b"7", "is not a JSON object"),
        (change(content_digest="ab" * 31), "has no `content_digest` of 64 lowercase hexadecimal digits"),
        (change(content_digest="ag" * 32), "has no `content_digest` of 64 lowercase hexadecimal digits"),
        (change(signer=""), "has no `signer` of 32 bytes in base64"),
        (change(signature="AA==\n"), "has no `signature` of 64 bytes in base64"),
    ],
)
def test_damage_is_named(data: bytes, what: str) -> None:
    with pytest.raises(Corrupt) as caught:
        parse_provenance(data)
    assert caught.value.message == f"`Capsule.provenance.json` {what}"


def test_an_envelope_has_a_bounded_size() -> None:
    data = change()
    whole = data + b" " * (MAX_PROVENANCE_BYTES - len(data))
    assert parse_provenance(whole) == parse_provenance(data)
    assert MAX_PROVENANCE_BYTES == 64 * 1024


def test_a_refusal_says_who_and_what_was_signed() -> None:
    provenance = sign_content(DIGEST, SEED)
    with pytest.raises(Corrupt) as caught:
        verify_provenance(provenance, Digest("cd" * 32))
    assert caught.value.context == {"signed": DIGEST, "found": "cd" * 32}
    with pytest.raises(Corrupt) as caught:
        verify_provenance(replace(provenance, signature=bytes(64)), DIGEST)
    assert caught.value.context == {"signer": provenance.signer}
    with pytest.raises(Corrupt) as caught:
        verify_provenance(replace(provenance, signer="00"), DIGEST)
    assert caught.value.code == "provenance-signature"


def test_a_schema_of_the_future_is_told_as_such() -> None:
    with pytest.raises(Corrupt) as caught:
        parse_provenance(change(schema_version=2))
    assert caught.value.message == (
        "`Capsule.provenance.json` has a schema or algorithm that this version does not know"
    )


def test_unknown_keys_are_taken() -> None:
    assert parse_provenance(change(note="later")) == parse_provenance(change())


@given(
    data=st.binary(max_size=200) | st.dictionaries(st.text(), st.text()).map(lambda d: json.dumps(d).encode())
)
def test_garbage_is_damage(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_provenance(data)
