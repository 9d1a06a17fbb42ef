"""store.allowances: standing approvals in the profile, which keeps everything else that is in it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aos_runtime.errors import Corrupt, LimitExceeded, NotFound
from aos_runtime.home import Home
from aos_runtime.names import DEFAULT_PRINCIPAL, PrincipalName
from aos_runtime.store import allowances
from aos_runtime.store.allowances import (
    AlwaysGrant,
    add_always,
    list_always,
    revoke_always,
)
from aos_runtime.store.principals import ensure_default, read_profile

HOSTED = AlwaysGrant(capsule="deploy", action="git push", resource="git push origin", workspace=None)
LOCAL = AlwaysGrant(capsule="deploy", action="git push", resource="git push origin", workspace="/work")


@pytest.fixture
def profile(home: Home) -> Home:
    ensure_default(home, now=datetime(2026, 1, 1, tzinfo=UTC))
    path = home.profile(DEFAULT_PRINCIPAL)
    path.write_text(f"# mine\n{path.read_text()}\n[newer]\nkey = 1 # kept\n", encoding="utf-8")
    return home


def test_abi_33_a_grant_is_kept_until_it_is_revoked(profile: Home) -> None:
    for grant in (HOSTED, LOCAL, HOSTED):
        add_always(profile, DEFAULT_PRINCIPAL, grant)
    assert list_always(profile, DEFAULT_PRINCIPAL) == (HOSTED, LOCAL)
    assert HOSTED.id != LOCAL.id
    assert revoke_always(profile, DEFAULT_PRINCIPAL, HOSTED.id) == HOSTED
    assert list_always(profile, DEFAULT_PRINCIPAL) == (LOCAL,)
    revoke_always(profile, DEFAULT_PRINCIPAL, LOCAL.id)
    assert list_always(profile, DEFAULT_PRINCIPAL) == ()
    with pytest.raises(NotFound, match="has no standing approval"):
        revoke_always(profile, DEFAULT_PRINCIPAL, HOSTED.id)


def test_the_rest_of_the_profile_stays(profile: Home) -> None:
    before = read_profile(profile, DEFAULT_PRINCIPAL)
    add_always(profile, DEFAULT_PRINCIPAL, HOSTED)
    text = profile.profile(DEFAULT_PRINCIPAL).read_text(encoding="utf-8")
    after = read_profile(profile, DEFAULT_PRINCIPAL)
    assert before is not None
    assert after is not None
    assert text.startswith("# mine\n")
    assert "key = 1 # kept" in text
    assert (after.groups, after.public_keys) == (before.groups, before.public_keys)
    assert profile.profile(DEFAULT_PRINCIPAL).stat().st_mode & 0o777 == 0o600


def test_a_published_row_without_a_capsule_covers_nobody(profile: Home) -> None:
    path = profile.profile(DEFAULT_PRINCIPAL)
    row = '\n[[approvals.command_always]]\ncommand = "git push"\nlocation = "hosted"\n'
    path.write_text(path.read_text() + row, encoding="utf-8")
    assert list_always(profile, DEFAULT_PRINCIPAL) == ()
    add_always(profile, DEFAULT_PRINCIPAL, HOSTED)
    revoke_always(profile, DEFAULT_PRINCIPAL, HOSTED.id)
    assert 'command = "git push"' in path.read_text(), "what is not ours stays"


def test_text_of_a_capsule_cannot_leave_its_string(profile: Home) -> None:
    hostile = AlwaysGrant(capsule="c", action='"]\n[auth]\nx = "', resource="''' \\ é", workspace=None)
    add_always(profile, DEFAULT_PRINCIPAL, hostile)
    assert list_always(profile, DEFAULT_PRINCIPAL) == (hostile,)


def test_bounds_and_refusals(profile: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowances, "MAX_GRANTS", 1)
    add_always(profile, DEFAULT_PRINCIPAL, HOSTED)
    with pytest.raises(LimitExceeded):
        add_always(profile, DEFAULT_PRINCIPAL, LOCAL)
    assert list_always(profile, PrincipalName("nobody")) == ()
    with pytest.raises(NotFound, match="does not exist"):
        add_always(profile, PrincipalName("nobody"), HOSTED)
    profile.profile(DEFAULT_PRINCIPAL).write_text("enabled = ", encoding="utf-8")
    with pytest.raises(Corrupt):
        list_always(profile, DEFAULT_PRINCIPAL)
