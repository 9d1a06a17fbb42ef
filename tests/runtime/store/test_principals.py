"""store.principals: a profile is read as far as it is understood."""

from __future__ import annotations

from datetime import datetime

import pytest

from aos_runtime.errors import Conflict, Corrupt
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store.keys import principal_seed, public_hex
from aos_runtime.store.principals import (
    DeviceKey,
    create_profile,
    ensure_default,
    key_id,
    list_profiles,
    read_profile,
)

ALICE = PrincipalName("alice")
PUBLIC = "ab" * 32


def _write(home: Home, text: str, principal: PrincipalName = ALICE) -> None:
    home.profiles.mkdir(parents=True, exist_ok=True)
    home.profile(principal).write_text(text)


def test_the_default_principal_is_seeded_as_admin_with_its_own_key(home: Home, now: datetime) -> None:
    profile = ensure_default(home, now=now)
    public = public_hex(principal_seed(home, DEFAULT_PRINCIPAL, create=False))
    assert (profile.enabled, profile.groups, profile.auth_methods) == (True, ("admin",), ("keypair",))
    assert profile.public_keys == (
        DeviceKey(key_id=key_id(public), public_key=public, is_full=True, allow=(), deny=(), label=None),
    )
    assert profile.warnings == ()
    assert home.profile(DEFAULT_PRINCIPAL).stat().st_mode & 0o777 == 0o600
    assert len(key_id(public)) == 16


def test_an_existing_profile_is_never_changed(home: Home, now: datetime) -> None:
    ensure_default(home, now=now)
    text = 'enabled = true\ngroups = ["agent"]\n'
    home.profile(DEFAULT_PRINCIPAL).write_text(text)
    assert ensure_default(home, now=now).groups == ("agent",)
    assert home.profile(DEFAULT_PRINCIPAL).read_text() == text


def test_a_key_that_was_made_before_a_kill_is_used(home: Home, now: datetime) -> None:
    seed = principal_seed(home, DEFAULT_PRINCIPAL, create=True)
    assert ensure_default(home, now=now).public_keys[0].public_key == public_hex(seed)


def test_who_has_no_profile_is_nobody(home: Home) -> None:
    assert read_profile(home, ALICE) is None
    assert list_profiles(home) == ()
    assert not home.root.exists()


def test_man_04_keys_of_a_newer_aos_are_warnings(home: Home) -> None:
    _write(
        home,
        'profile_version = 1\nshoe_size = 42\ngrants = ["self:capsule:list"]\n'
        "[quotas]\nmax_memory_bytes = 1024\nmax_gpu_seconds = 3\n"
        "[process]\nallow = []\nnice = 1\n",
    )
    profile = read_profile(home, ALICE)
    assert profile is not None
    assert profile.grants == ("self:capsule:list",)
    assert profile.quotas == {"max_memory_bytes": 1024}
    assert profile.warnings == (
        "unknown key `shoe_size` has no effect",
        "unknown key `process.nice` has no effect",
        "unknown key `quotas.max_gpu_seconds` has no effect",
    )


def test_what_capsules_are_held_to_is_absent_or_a_list(home: Home) -> None:
    """An absent key narrows nothing, an empty list allows nothing."""
    _write(home, "")
    profile = read_profile(home, ALICE)
    assert profile is not None and (profile.egress, profile.programs) == (None, None)
    _write(home, "[network]\negress = []\ncapsule_egress = true\n[process]\nallow = ['git', 'ls']\n")
    profile = read_profile(home, ALICE)
    assert profile is not None and (profile.egress, profile.programs) == ((), ("git", "ls"))
    assert profile.warnings == ("unknown key `network.capsule_egress` has no effect",)


def test_man_04_only_the_version_is_a_gate(home: Home) -> None:
    _write(home, "profile_version = 2\nanything = 1\n")
    with pytest.raises(Conflict) as caught:
        read_profile(home, ALICE)
    assert caught.value.code == "profile-newer"


@pytest.mark.parametrize(
    "text",
    [
        "enabled = 1\n",
        'enabled = "yes"\n',
        "groups = 1\n",
        "groups = [1]\n",
        "auth = 1\n",
        "[auth]\npublic_keys = 1\n",
        "[auth]\npublic_keys = [1]\n",
        '[[auth.public_keys]]\nkey_id = "a"\n',
        '[[auth.public_keys]]\npubkey = "abc"\n',
        f'[[auth.public_keys]]\npubkey = "{PUBLIC}"\nscope = {{ type = "anything" }}\n',
        "not toml",
        "[quotas]\nmax_memory_bytes = '64MB'\n",
        "[quotas]\nmax_timeout_secs = 1.5\n",
        "[quotas]\nmax_background_processes = true\n",
        "[network]\negress = 'example.com'\n",
        "[network]\negress = [1]\n",
        "[process]\nallow = {}\n",
    ],
)
def test_a_profile_that_means_nothing_is_refused_not_guessed(home: Home, text: str) -> None:
    _write(home, text)
    with pytest.raises(Corrupt) as caught:
        read_profile(home, ALICE)
    assert caught.value.code == "profile-damaged"


def test_scoped_keys_carry_their_scope(home: Home) -> None:
    _write(
        home,
        f'[[auth.public_keys]]\npubkey = "{PUBLIC}"\nlabel = "phone"\n'
        'scope = { type = "scoped", allow = ["self:*"], deny = ["self:auth:pair"] }\n',
    )
    profile = read_profile(home, ALICE)
    assert profile is not None
    assert profile.public_keys == (
        DeviceKey(
            key_id=key_id(PUBLIC),
            public_key=PUBLIC,
            is_full=False,
            allow=("self:*",),
            deny=("self:auth:pair",),
            label="phone",
        ),
    )


def test_names_that_differ_only_in_case_are_refused(home: Home, now: datetime) -> None:
    create_profile(home, ALICE, groups=("agent",), now=now)
    with pytest.raises(Conflict) as caught:
        create_profile(home, PrincipalName("Alice"), groups=(), now=now)
    assert caught.value.code == "principal-case"
    with pytest.raises(Conflict) as caught:
        create_profile(home, ALICE, groups=(), now=now)
    assert caught.value.code == "principal-exists"
    _write(home, "", PrincipalName("ALICE"))
    with pytest.raises(Conflict):
        list_profiles(home)


def test_only_profiles_are_listed(home: Home, now: datetime) -> None:
    create_profile(home, ALICE, groups=(), now=now)
    ensure_default(home, now=now)
    for name in ("notes.txt", "a b.toml", ".x.toml"):
        (home.profiles / name).write_text("")
    assert list_profiles(home) == ("alice", "default")
