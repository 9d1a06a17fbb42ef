"""store.content: a blob is what its name says, or an error."""

from __future__ import annotations

import pytest

from aos_runtime.capsule.provenance import bytes_digest
from aos_runtime.errors import Corrupt
from aos_runtime.home import Home
from aos_runtime.store.content import put_blob, put_wit, read_blob


def test_a_blob_comes_back(home: Home) -> None:
    digest = put_blob(home, b"code").digest
    assert digest == bytes_digest(b"code")
    assert read_blob(home, digest) == b"code"
    assert home.blob(digest).stat().st_mode & 0o777 == 0o600


def test_an_intact_blob_is_not_written_again(home: Home) -> None:
    digest = put_blob(home, b"code").digest
    before = home.blob(digest).stat().st_ino
    assert not put_blob(home, b"code").repaired
    assert home.blob(digest).stat().st_ino == before


@pytest.mark.parametrize("damage", [b"garbage", b"", b"Code"])
def test_ins_05_a_damaged_blob_is_repaired_when_it_is_put_again(home: Home, damage: bytes) -> None:
    digest = put_blob(home, b"code").digest
    home.blob(digest).write_bytes(damage)
    assert put_blob(home, b"code").repaired
    assert read_blob(home, digest) == b"code"


@pytest.mark.parametrize(("damage", "words"), [(b"", "is empty"), (b"cod\x00", "does not match its digest")])
def test_ins_04_a_damaged_blob_is_said_to_be_damaged(home: Home, damage: bytes, words: str) -> None:
    digest = put_blob(home, b"code").digest
    home.blob(digest).write_bytes(damage)
    with pytest.raises(Corrupt) as caught:
        read_blob(home, digest)
    assert caught.value.code == "blob-damaged"
    assert words in caught.value.message
    assert "install the capsule again" in caught.value.hint


def test_a_missing_blob_is_said_to_be_missing(home: Home) -> None:
    with pytest.raises(Corrupt) as caught:
        read_blob(home, bytes_digest(b"never put"))
    assert caught.value.code == "blob-missing"


def test_a_link_in_place_of_a_blob_is_replaced_not_followed(home: Home) -> None:
    digest = put_blob(home, b"code").digest
    target = home.root / "elsewhere"
    target.write_bytes(b"code")
    home.blob(digest).unlink()
    home.blob(digest).symlink_to(target)
    with pytest.raises(Corrupt):
        read_blob(home, digest)
    put_blob(home, b"code")
    assert not home.blob(digest).is_symlink()


def test_wit_files_have_a_store_of_their_own(home: Home) -> None:
    digest = put_wit(home, b"package a:b;")
    assert (home.wit_store / f"{digest}.wit").read_bytes() == b"package a:b;"
