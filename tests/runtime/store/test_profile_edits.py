"""Changing profiles: comments and what is not understood stay, and no half profile is ever written."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aos_runtime.errors import Corrupt, NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, CapsuleName, PrincipalName
from aos_runtime.store.principals import create_profile, ensure_default
from aos_runtime.store.profile_edits import (
    allow_capsule,
    change_profile,
    disallow_capsule,
    profiles_locked,
    set_list,
)

BOB = PrincipalName("bob")
HELLO = CapsuleName("hello")
NOW = datetime(2026, 8, 1, tzinfo=UTC)


@pytest.fixture
def bob(home: Home) -> Home:
    create_profile(home, BOB, groups=("agent",), now=NOW)
    return home


def test_a_change_keeps_comments_and_unknown_keys(bob: Home) -> None:
    path = bob.profile(BOB)
    path.write_text(f"# mine\nlater = 1\n{path.read_text()}")
    with profiles_locked(bob):
        before, after = change_profile(bob, BOB, lambda text: set_list(text, "grants", ["a:b", "a:b", "c"]))
    assert (before.grants, after.grants) == ((), ("a:b", "c"))
    text = path.read_text()
    assert text.startswith("# mine\nlater = 1\n")
    assert after.public_keys == before.public_keys


def test_a_change_that_would_be_no_profile_is_not_read_as_one(bob: Home) -> None:
    with pytest.raises(Corrupt, match="damaged"), profiles_locked(bob):
        change_profile(bob, BOB, lambda text: text.update({"groups": 1}))


def test_a_principal_without_a_profile(home: Home) -> None:
    with pytest.raises(NotFound) as raised, profiles_locked(home):
        change_profile(home, BOB, lambda text: None)
    assert raised.value.code == "principal-unknown"
    assert not allow_capsule(home, BOB, HELLO)


def test_granting_a_capsule_and_taking_it_back(bob: Home) -> None:
    assert [allow_capsule(bob, BOB, HELLO), allow_capsule(bob, BOB, HELLO)] == [True, False]
    assert 'capsules = ["hello"]' in bob.profile(BOB).read_text()
    assert [disallow_capsule(bob, BOB, HELLO), disallow_capsule(bob, BOB, HELLO)] == [True, False]


def test_an_admin_needs_no_grants(home: Home) -> None:
    ensure_default(home, now=NOW)
    assert not allow_capsule(home, DEFAULT_PRINCIPAL, HELLO)
