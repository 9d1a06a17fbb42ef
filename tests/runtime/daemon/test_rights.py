"""Who may connect: keys of profiles on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.daemon.rights import Rights
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store.layout import open_home
from aos_runtime.store.principals import create_profile, ensure_default
from tests.support.kernels import fixed_now

BOB = PrincipalName("bob")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    open_home(made, create=True)
    ensure_default(made, now=fixed_now())
    create_profile(made, BOB, groups=("agent",), now=fixed_now())
    return made


def edit(home: Home, old: str, new: str) -> None:
    path = home.profile(BOB)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_an_enabled_principal_authenticates_with_its_keys(home: Home) -> None:
    rights = Rights(home)
    keys = rights.find_keys(BOB)
    assert keys is not None
    [key] = keys
    assert (len(key.public_key), key.allow, key.deny) == (64, None, ())
    assert rights.device(BOB, key.key_id) == key
    assert rights.device(BOB, "other") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("enabled = true", "enabled = false"),
        ('methods = ["keypair"]', 'methods = ["passkey"]'),
        ("enabled", "= ="),
    ],
)
def test_who_may_not_authenticate(home: Home, old: str, new: str) -> None:
    edit(home, old, new)
    assert Rights(home).find_keys(BOB) is None


def test_nobody_without_a_profile_authenticates(home: Home) -> None:
    assert Rights(home).find_keys(PrincipalName("carol")) is None


def test_only_some_may_list_others(home: Home) -> None:
    rights = Rights(home)
    assert rights.may_list_agents(DEFAULT_PRINCIPAL)
    assert not rights.may_list_agents(BOB)
    assert [one.principal for one in rights.agents(None)] == ["bob", "default"]
    assert [(one.principal, one.groups) for one in rights.agents(BOB)] == [("bob", ("agent",))]


def test_a_damaged_profile_is_left_out_of_the_list(home: Home) -> None:
    edit(home, "enabled", "= =")
    assert [one.principal for one in Rights(home).agents(None)] == ["default"]
