"""HTTP addresses, read in one way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.urls import Url, UrlProblem, parse_url, resolve_location


def url(text: str) -> Url:
    found = parse_url(text)
    assert isinstance(found, Url)
    return found


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("http://Example.com", "http://example.com/"),
        ("HTTPS://example.com:443/a?b=c#d", "https://example.com/a?b=c"),
        ("http://example.com:8080?x", "http://example.com:8080/?x"),
        ("http://example.com:/", "http://example.com/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("http://a/ö b?c=ü d", "http://a/%C3%B6%20b?c=%C3%BC%20d"),
        ("http://a/%41%zz", "http://a/%41%zz"),
        ("  http://a/  ", "http://a/"),
    ],
)
def test_an_address_is_read_and_written(text: str, rendered: str) -> None:
    assert url(text).render() == rendered


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", UrlProblem.INVALID),
        ("example.com", UrlProblem.INVALID),
        ("//example.com/", UrlProblem.INVALID),
        ("http:/a", UrlProblem.INVALID),
        ("http:a", UrlProblem.INVALID),
        ("http:///a", UrlProblem.INVALID),
        ("http://user@a/", UrlProblem.INVALID),
        ("http://trusted.net@evil.com/", UrlProblem.INVALID),
        ("http://a\\@b/", UrlProblem.INVALID),
        ("http://a/\r\nHost: b", UrlProblem.INVALID),
        ("ht\ttp://a/", UrlProblem.INVALID),
        ("http://a\x00/", UrlProblem.INVALID),
        ("http://a:0/", UrlProblem.INVALID),
        ("http://a:65536/", UrlProblem.INVALID),
        ("http://a:8a/", UrlProblem.INVALID),
        ("http://fe80::1/", UrlProblem.INVALID),
        ("http://[fe80::1%25eth0]/", UrlProblem.INVALID),
        ("http://localhost../", UrlProblem.INVALID),
        ("http://a/" + "x" * 20_000, UrlProblem.INVALID),
        ("file:///etc/passwd", UrlProblem.SCHEME),
        ("ftp://a/", UrlProblem.SCHEME),
        ("gopher://a/", UrlProblem.SCHEME),
        ("data:text/plain,x", UrlProblem.SCHEME),
    ],
)
def test_abi_18_what_is_no_http_address_is_refused(text: str, problem: UrlProblem) -> None:
    assert parse_url(text) == problem


@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("/b?c", "https://example.com:8443/b?c"),
        ("b", "https://example.com:8443/a/b"),
        ("//other.example/x", "https://other.example/x"),
        ("http://[::1]/", "http://[::1]/"),
        (" /b?c ", "https://example.com:8443/b?c"),
        ("?q", "https://example.com:8443/a/a?q"),
        ("file:///etc/passwd", UrlProblem.SCHEME),
        ("javascript:alert(1)", UrlProblem.SCHEME),
        ("http://user@b/", UrlProblem.INVALID),
        ("/a\r\nx", UrlProblem.INVALID),
        ("http://[/", UrlProblem.INVALID),
    ],
)
def test_a_location_is_resolved_against_where_it_came_from(location: str, target: str | UrlProblem) -> None:
    found = resolve_location(url("https://example.com:8443/a/a"), location)
    assert (found.render() if isinstance(found, Url) else found) == target


def test_the_problems_are_the_wit_names() -> None:
    assert [*UrlProblem] == ["invalid-request", "scheme-denied"]


def test_an_address_has_16384_characters_at_most() -> None:
    longest = "http://a/" + "x" * (16_384 - 9)
    assert url(longest).render() == longest
    assert parse_url(f"{longest}x") is UrlProblem.INVALID


def test_what_stands_for_itself_in_path_and_query_stays_as_it_is() -> None:
    assert url("http://a/!#").target == "/!"
    kept = "/!$%&'()*+,/:;=@[]~|^-._?!$%&'()*+,/:;=?@[]~|^-._"
    assert url(f"http://a{kept}").target == kept


@pytest.mark.parametrize(
    ("text", "origin", "is_secure"),
    [
        ("http://A/x", ("http", "a", 80), False),
        ("https://a:443/", ("https", "a", 443), True),
        ("http://a:1/", ("http", "a", 1), False),
        ("http://a:65535/", ("http", "a", 65_535), False),
    ],
)
def test_the_origin_is_scheme_host_and_port(text: str, origin: tuple[str, str, int], is_secure: bool) -> None:
    assert (url(text).origin, url(text).is_secure) == (origin, is_secure)


def test_what_is_put_on_record_has_no_query() -> None:
    assert url("https://a/b/c?key=secret#x").without_query() == "https://a/b/c"


@given(st.text(max_size=60))
def test_what_is_read_is_plain_and_reads_as_itself_again(text: str) -> None:
    for found in (parse_url(text), parse_url(f"http://{text}"), parse_url(f"http://a/{text}")):
        if isinstance(found, Url):
            assert parse_url(found.render()) == found
            assert found.target.isascii()
            assert not any(character.isspace() for character in found.render())
