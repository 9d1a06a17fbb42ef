"""What a profile holds the capsules of its principal to."""

from __future__ import annotations

import pytest

from aos_runtime.policy.bounds import EGRESS, PROGRAMS, UNBOUND, Bounds
from aos_runtime.policy.hosts import parse_host


def reaches(bounds: Bounds, text: str, port: int) -> bool:
    host = parse_host(text)
    assert host is not None
    return bounds.reaches(host, port)


@pytest.mark.parametrize(
    ("egress", "host", "port", "is_reached"),
    [
        (None, "example.com", 443, True),
        (("*",), "example.com", 443, True),
        ((), "example.com", 443, False),
        (("example.com",), "example.com", 443, True),
        (("example.com",), "api.EXAMPLE.com.", 80, True),
        (("example.com",), "notexample.com", 443, False),
        (("api.example.com",), "example.com", 443, False),
        (("example.com:443",), "example.com", 443, True),
        (("example.com:443",), "example.com", 80, False),
        (("example.com:443",), "api.example.com", 443, False),
        (("example.com:443",), "example.com", 0, True),
        (("other.com:443",), "example.com", 0, False),
        (("example.com:*",), "example.com", 80, True),
        (("8.8.8.8",), "0x08080808", 53, True),
        (("[2001:4860::1]:53",), "2001:4860::1", 53, True),
        (("https://example.com", "example.com/path"), "example.com", 443, False),
        (("x.org", "example.com"), "example.com", 443, True),
    ],
)
def test_hosts(egress: tuple[str, ...] | None, host: str, port: int, is_reached: bool) -> None:
    assert reaches(Bounds("bob", egress), host, port) is is_reached


def test_an_entry_that_names_no_host_is_told_and_allows_nothing() -> None:
    bounds = Bounds("bob", ("https://a.com", "*", "a b", "ok.com"))
    assert bounds.unreadable == ("https://a.com", "a b")
    assert not reaches(Bounds("bob", ("https://a.com",)), "a.com", 443)


@pytest.mark.parametrize(
    ("programs", "words", "is_started"),
    [
        (None, ("git",), True),
        ((), ("git",), False),
        (("git",), ("git", "push"), True),
        (("git push",), ("git", "push", "-f"), True),
        (("git push",), ("git", "pull"), False),
        (("git",), ("/usr/bin/git",), False),
        (("*",), ("git",), False),
        (("",), ("git",), False),
        (("ls", "git"), ("git",), True),
    ],
)
def test_programs(programs: tuple[str, ...] | None, words: tuple[str, ...], is_started: bool) -> None:
    assert Bounds("bob", None, programs).starts(words[0], words[1:]) is is_started


def test_each_narrows_its_own_kind_alone() -> None:
    assert Bounds("bob", ()).starts("git", ())
    assert reaches(Bounds("bob", None, ()), "example.com", 1)
    assert UNBOUND.starts("git", ()) and reaches(UNBOUND, "example.com", 1)


def test_what_is_said_of_a_refusal() -> None:
    bounds = Bounds("bob")
    assert bounds.rule(EGRESS) == "network.egress of principal 'bob' does not list it"
    assert bounds.allow(EGRESS, "a.com:443") == 'etc/profiles/bob.toml: [network] egress = ["a.com:443"]'
    assert bounds.allow(PROGRAMS, "git") == 'etc/profiles/bob.toml: [process] allow = ["git"]'
