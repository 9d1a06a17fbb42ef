"""Key pairs on disk: made, listed, never replaced by accident, and a principal's key is left alone."""

from __future__ import annotations

import base64
import stat
from datetime import UTC, datetime

import pytest

from aos_runtime.errors import AosError, Corrupt
from aos_runtime.home import Home
from aos_runtime.names import PrincipalName
from aos_runtime.store.keypairs import (
    delete_keypair,
    generate_keypair,
    list_keypairs,
    openssh_text,
    read_keypair,
    wire_text,
)
from aos_runtime.store.principals import create_profile


@pytest.fixture
def bob(home: Home) -> Home:
    create_profile(home, PrincipalName("bob"), groups=(), now=datetime(2026, 8, 1, tzinfo=UTC))
    return home


def refusal(home: Home, name: str, *, replace: bool = False) -> str:
    with pytest.raises(AosError) as raised:
        generate_keypair(home, name, note=None, replace=replace)
    return raised.value.code


def test_a_pair_is_made_once_and_read_back(home: Home) -> None:
    made = generate_keypair(home, "laptop", note="mine", replace=False)
    assert (made.note, made.bound_principal, len(made.public_key)) == ("mine", None, 64)
    assert read_keypair(home, "laptop") == made
    assert refusal(home, "laptop") == "keypair-exists"
    assert refusal(home, "LapTop") == "keypair-case"
    assert generate_keypair(home, "laptop", note=None, replace=True).public_key != made.public_key
    secret = home.keypairs / "laptop.ed25519"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert generate_keypair(home, None, note=None, replace=False).name.startswith("key-")


def test_the_key_of_a_principal_is_listed_and_left_alone(bob: Home) -> None:
    [pair] = list_keypairs(bob)
    assert (pair.name, pair.bound_principal, pair.is_local) == ("bob", "bob", False)
    assert refusal(bob, "bob", replace=True) == "keypair-of-principal"
    with pytest.raises(AosError, match="could not connect without it"):
        delete_keypair(bob, "bob")


def test_deleting(home: Home) -> None:
    generate_keypair(home, "laptop", note=None, replace=False)
    assert delete_keypair(home, "laptop").name == "laptop"
    assert list_keypairs(home) == ()
    assert list(home.keypairs.iterdir()) == []
    with pytest.raises(AosError, match="there is no key pair"):
        read_keypair(home, "laptop")


def test_a_bound_pair_names_its_principal(bob: Home) -> None:
    pair = generate_keypair(bob, "laptop", note=None, replace=False)
    path = bob.profile(PrincipalName("bob"))
    path.write_text(f'{path.read_text()}\n[[auth.public_keys]]\npubkey = "{pair.public_key}"\n')
    assert read_keypair(bob, "laptop").bound_principal == "bob"


def test_forms_of_the_public_key(home: Home) -> None:
    pair = generate_keypair(home, "laptop", note=None, replace=False)
    raw = bytes.fromhex(pair.public_key)
    kind, text, name = openssh_text(pair).split()
    assert (kind, name) == ("ssh-ed25519", "laptop")
    assert base64.b64decode(text) == b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + raw
    assert base64.b64decode(wire_text(pair)) == raw


def test_what_is_wrong_with_a_pair(home: Home) -> None:
    assert refusal(home, "a/b") == "keypair-name"
    with pytest.raises(AosError, match="printable line"):
        generate_keypair(home, "x", note="a\nb", replace=False)
    generate_keypair(home, "laptop", note=None, replace=False)
    (home.keypairs / "laptop.ed25519").write_bytes(b"short")
    with pytest.raises(Corrupt, match="holds 5 bytes"):
        list_keypairs(home)
