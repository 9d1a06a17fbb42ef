"""What the bus knows of principals: standing, quotas and bounds, as of the last look at a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from aos_runtime.daemon.rights import Rights
from aos_runtime.home import Home
from aos_runtime.kernel.principals import Principals
from aos_runtime.names import PrincipalName
from aos_runtime.policy.hosts import parse_host
from aos_runtime.policy.quotas import Quotas
from aos_runtime.store.principals import create_profile
from tests.support.kernels import fixed_now

BOB = PrincipalName("bob")
SITE = parse_host("example.com")
assert SITE is not None


class Desk:
    """A home with one principal, `bob`."""

    def __init__(self, home: Home) -> None:
        self.home = home
        create_profile(home, BOB, groups=("agent",), now=fixed_now())
        self.text = home.profile(BOB).read_text()
        self.notes: list[tuple[str, str]] = []
        self.principals = Principals(
            Rights(home), base=Quotas(), note=lambda level, text: self.notes.append((level, text))
        )

    def write(self, more: str) -> None:
        self.home.profile(BOB).write_text(self.text + more)
        self.principals.refresh(BOB)

    @property
    def allowed(self) -> tuple[bool, bool]:
        """Whether its capsules reach a site, and start a program."""
        bounds = self.principals.bounds(BOB)
        assert SITE is not None
        return bounds.reaches(SITE, 443), bounds.starts("git", ("push",))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(Home(tmp_path / "home"))


@pytest.mark.parametrize(
    ("more", "allowed"),
    [
        ("", (True, True)),
        ("[network]\negress = []\n", (False, True)),
        ("[process]\nallow = []\n", (True, False)),
        ("[network]\negress = ['example.com']\n[process]\nallow = ['git']\n", (True, True)),
        ("[network]\negress = ['other.org']\n[process]\nallow = ['git pull']\n", (False, False)),
        ("[network]\negress = 1\n", (False, False)),
        ("= broken", (False, False)),
    ],
)
def test_what_a_profile_holds_its_capsules_to(desk: Desk, more: str, allowed: tuple[bool, bool]) -> None:
    desk.write(more)
    assert desk.allowed == allowed


def test_who_was_never_looked_at_or_is_gone_reaches_and_starts_nothing(desk: Desk) -> None:
    assert desk.allowed == (False, False)
    desk.principals.refresh(BOB)
    assert desk.allowed == (True, True)
    desk.principals.forget(BOB)
    assert desk.allowed == (False, False)
    desk.home.profile(BOB).unlink()
    desk.principals.refresh(BOB)
    assert desk.allowed == (False, False)


def test_a_key_that_has_no_effect_is_told_once_and_again_when_it_comes_back(desk: Desk) -> None:
    for more in ("shoe_size = 1\n[network]\negress = ['a b']\ncapsule_egress = true\n",) * 2:
        desk.home.profile(BOB).write_text(f"{more}")
        desk.principals.refresh(BOB)
    told = [
        ("warn", f"profile of principal bob: {text}")
        for text in (
            "unknown key `shoe_size` has no effect",
            "unknown key `network.capsule_egress` has no effect",
            "network.egress: 'a b' is no host and allows nothing",
        )
    ]
    assert desk.notes == told
    desk.write("")
    desk.home.profile(BOB).write_text("shoe_size = 1\n")
    desk.principals.refresh(BOB)
    assert desk.notes == [*told, told[0]]


def test_bounds_are_of_a_principal_alone(desk: Desk) -> None:
    desk.write("[process]\nallow = []\n")
    create_profile(desk.home, PrincipalName("carol"), groups=("agent",), now=fixed_now())
    desk.principals.refresh(PrincipalName("carol"))
    assert desk.principals.bounds(PrincipalName("carol")).starts("git", ())
