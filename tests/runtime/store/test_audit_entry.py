"""store.audit_entry: lines, ids and times; what is cut, and where."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nacl.signing import SigningKey

from aos_runtime.store.audit_entry import (
    GENESIS,
    MAX_STRING_BYTES,
    Entry,
    Session,
    batch_digest,
    bounded,
    capped,
    decode_entry,
    encode_entry,
    is_signed_batch,
    is_signed_receipt,
    sign_digest,
    sign_receipt,
)

KEY = SigningKey(b"\1" * 32)


def test_a_line_word_for_word() -> None:
    entry = Entry("i", "t", "s", {"type": "x"}, {"type": "system"}, {"status": "success"}, GENESIS, "alice")
    assert encode_entry(entry).decode() == (
        '{"id":"i","timestamp":"t","session_id":"s","action":{"type":"x"},"authorization":{"type":"system"},'
        f'"outcome":{{"status":"success"}},"previous_hash":"{GENESIS}","principal":"alice"}}'
    )
    assert decode_entry(encode_entry(entry)) == entry


def test_what_the_system_did_for_nobody_has_no_principal() -> None:
    entry = Entry("i", "t", "s", {}, {}, {}, GENESIS)
    assert "principal" not in json.loads(encode_entry(entry))
    assert decode_entry(encode_entry(entry)).principal is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("x" * 1024, "x" * 1024),
        ("x" * 20_000_000, "x" * 1024),
        ("ä" * 600, "ä" * 512),
        ("x" + "€" * 400, "x" + "€" * 341),
        ("😀" * 300, "😀" * 256),
        ("a\ud800b", "a?b"),
    ],
)
def test_sec_14_strings_are_cut_between_characters(text: str, kept: str) -> None:
    assert capped(text) == kept


@given(st.text())
def test_a_cut_string_is_a_beginning_and_short(text: str) -> None:
    cut = capped(text)
    assert text.startswith(cut)
    assert len(cut.encode()) <= MAX_STRING_BYTES


def test_values_are_bounded_at_any_depth() -> None:
    deep: dict[str, object] = {"a": "x"}
    for _ in range(9):
        deep = {"a": deep}
    value = bounded({"k" * 2000: ["y" * 2000] * 100, "deep": deep, "n": 1, "none": None, "odd": object()})
    assert list(value) == ["k" * 1024, "deep", "n", "none", "odd"]
    assert value["k" * 1024] == ["y" * 1024] * 64
    assert (value["n"], value["none"], value["odd"]) == (1, None, "...")
    assert json.dumps(value["deep"]).count("{") == 5


def test_ids_are_uuids_that_never_repeat() -> None:
    session = Session()
    ids = [session.next_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(str(uuid.UUID(one)) == one and one.startswith(session.id[:18]) for one in ids)


def test_times_are_utc_with_microseconds() -> None:
    session = Session()
    assert session.timestamp(1_785_578_400_123_456_789) == "2026-08-01T10:00:00.123456Z"
    assert session.timestamp(1_785_578_400_000_000_000) == "2026-08-01T10:00:00.000000Z"
    assert session.timestamp(1_785_578_401_999_999_999) == "2026-08-01T10:00:01.999999Z"


def test_every_part_of_a_batch_is_in_its_digest() -> None:
    parts = (7, b"\0" * 32, 3, 2, b"a\nb")
    others = [(8, *parts[1:]), (7, b"\1" * 32, 3, 2, b"a\nb"), (7, b"\0" * 32, 4, 2, b"a\nb")]
    others += [(7, b"\0" * 32, 3, 1, b"a\nb"), (7, b"\0" * 32, 3, 2, b"a\nc")]
    digests = {batch_digest(*one) for one in [parts, *others]}
    assert len(digests) == 6


def test_a_signature_is_for_one_purpose_and_one_key() -> None:
    digest, other = b"\5" * 32, SigningKey(b"\2" * 32).verify_key
    signature = sign_digest(KEY, digest)
    assert is_signed_batch(KEY.verify_key, digest, signature)
    assert not is_signed_batch(KEY.verify_key, b"\6" * 32, signature)
    assert not is_signed_batch(other, digest, signature)
    assert not is_signed_batch(KEY.verify_key, digest, b"short")
    assert not is_signed_receipt(KEY.verify_key, digest, signature)
    assert is_signed_receipt(KEY.verify_key, digest, sign_receipt(KEY, digest))
