"""store.receipts: the published fields, ours beside them, and no receipt that contradicts itself."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.capsule.provenance import bytes_digest, content_digest, manifest_digest
from aos_runtime.errors import Corrupt
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName
from aos_runtime.store.receipts import (
    ApprovalSource,
    ContentFile,
    Receipt,
    parse_receipt,
    read_receipt,
    remove_receipts,
    render_receipt,
    write_receipt,
)

DEMO = CapsuleName("demo")


def make_receipt(name: CapsuleName = DEMO, text: bytes = b"x") -> Receipt:
    entries = (ContentFile(path="Capsule.toml", size_bytes=len(text), digest=bytes_digest(text)),)
    return Receipt(
        principal=DEFAULT_PRINCIPAL,
        capsule=name,
        version="0.1.0",
        source=ApprovalSource.EXPLICIT,
        content_digest=content_digest(entries),
        manifest_digest=manifest_digest(text),
        capabilities=Capabilities(net=("x.org",)),
        requests=("run the MCP server `a`: b",),
        wasm_digest=bytes_digest(b"wasm"),
        signer=None,
        signature=None,
        entries=entries,
    )


def test_the_file_has_the_published_keys() -> None:
    value = json.loads(render_receipt(make_receipt()))
    assert set(value) == {
        "schema_version",
        "source",
        "principal",
        "capsule_id",
        "version",
        "content_digest",
        "manifest_digest",
        "approved_capabilities",
        "approved_requests",
        "wasm_hash_pinned",
        "approved_wasm_hash",
        "entries",
    }
    assert (value["schema_version"], value["source"]) == (1, "explicit-approval")


@given(st.binary(max_size=64))
def test_a_receipt_comes_back(text: bytes) -> None:
    receipt = make_receipt(text=text)
    assert parse_receipt(render_receipt(receipt)) == receipt


@given(st.binary(max_size=200))
def test_garbage_is_corrupt_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_receipt(data)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", 2),
        ("source", "legacy-migration"),
        ("content_digest", "0" * 64),
        ("entries", [["Capsule.toml", 2, "0" * 64]]),
        ("entries", [["Capsule.toml", "2", "0" * 64]]),
        ("entries", [["Capsule.toml", -1, "0" * 64]]),
        ("entries", [["Capsule.toml", 2**70, "0" * 64]]),
        ("entries", [["\ud800", 2, "0" * 64]]),
        ("approved_capabilities", {"net": 1}),
        ("version", 1),
    ],
)
def test_a_changed_receipt_is_refused(key: str, value: object) -> None:
    changed = {**json.loads(render_receipt(make_receipt())), key: value}
    with pytest.raises(Corrupt) as caught:
        parse_receipt(json.dumps(changed).encode())
    assert caught.value.code == "receipt-damaged"


def test_a_receipt_of_another_capsule_is_no_receipt(home: Home) -> None:
    receipt = make_receipt()
    write_receipt(home, receipt)
    other = CapsuleName("other")
    home.receipts(DEFAULT_PRINCIPAL, other).mkdir()
    target = home.receipt(DEFAULT_PRINCIPAL, other, receipt.content_digest)
    home.receipt(DEFAULT_PRINCIPAL, DEMO, receipt.content_digest).rename(target)
    with pytest.raises(Corrupt):
        read_receipt(home, DEFAULT_PRINCIPAL, other, receipt.content_digest)


def test_old_receipts_are_removed_and_the_live_one_kept(home: Home) -> None:
    old, new = make_receipt(text=b"old"), make_receipt(text=b"new")
    write_receipt(home, old)
    write_receipt(home, new)
    remove_receipts(home, DEFAULT_PRINCIPAL, DEMO, keep=new.content_digest)
    assert read_receipt(home, DEFAULT_PRINCIPAL, DEMO, old.content_digest) is None
    assert read_receipt(home, DEFAULT_PRINCIPAL, DEMO, new.content_digest) == new
