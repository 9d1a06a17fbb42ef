"""store.keys: made once, private, never replaced."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey, VerifyKey

from aos_runtime.errors import Corrupt, Denied, NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.keys import (
    cache_key,
    load_runtime_seed,
    principal_seed,
    public_hex,
)


def test_a_key_is_made_once_and_is_private(home: Home) -> None:
    seed = load_runtime_seed(home, create=True)
    assert len(seed) == 32
    assert load_runtime_seed(home, create=True) == seed == load_runtime_seed(home, create=False)
    assert home.runtime_key.stat().st_mode & 0o777 == 0o600
    assert home.keys.stat().st_mode & 0o777 == 0o700
    assert principal_seed(home, DEFAULT_PRINCIPAL, create=True) != seed


def test_looking_for_a_key_makes_none(home: Home) -> None:
    with pytest.raises(NotFound) as caught:
        load_runtime_seed(home, create=False)
    assert caught.value.code == "key-missing"
    assert not home.root.exists()


def test_a_damaged_key_is_never_replaced(home: Home) -> None:
    load_runtime_seed(home, create=True)
    home.runtime_key.write_bytes(b"short")
    with pytest.raises(Corrupt) as caught:
        load_runtime_seed(home, create=True)
    assert caught.value.code == "key-damaged"
    assert home.runtime_key.read_bytes() == b"short"


def test_a_key_that_others_can_read_is_refused(home: Home) -> None:
    load_runtime_seed(home, create=True)
    home.runtime_key.chmod(0o640)
    with pytest.raises(Denied) as caught:
        load_runtime_seed(home, create=False)
    assert caught.value.code == "key-exposed"
    assert f"chmod 600 {home.runtime_key}" in caught.value.hint


def test_the_cache_key_is_derived_and_not_the_seed() -> None:
    seed = bytes(range(32))
    assert len(cache_key(seed)) == 32
    assert cache_key(seed) not in (seed, cache_key(bytes(32)))


def test_the_public_key_is_the_one_that_verifies() -> None:
    seed = bytes(range(32))
    signature = SigningKey(seed).sign(b"message").signature
    VerifyKey(bytes.fromhex(public_hex(seed))).verify(b"message", signature)
