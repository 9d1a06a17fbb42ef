"""What a request may say, and what of it survives a redirect."""

from __future__ import annotations

import base64
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.http_rules import (
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    MAX_REDIRECTS,
    REDIRECTS,
    HttpRequest,
    Integrity,
    Refused,
    check_headers,
    check_method,
    parse_integrity,
)
from aos_runtime.policy.urls import Url, parse_url


def url(text: str) -> Url:
    found = parse_url(text)
    assert isinstance(found, Url)
    return found


HERE = url("https://a.example/x")


def no_secret(name: str) -> str | None:
    raise Refused("capability-denied", name)


@pytest.mark.parametrize(("name", "method"), [("GET", "GET"), ("get", "GET"), ("PROPFIND", "PROPFIND")])
def test_a_method_is_normalised(name: str, method: str) -> None:
    assert check_method(name) == method


@pytest.mark.parametrize("name", ["", "GE T", "GET\r\n", "GÉT", "CONNECT", "trace", "G" * 65])
def test_abi_18_what_is_no_method_is_refused(name: str) -> None:
    with pytest.raises(Refused) as refused:
        check_method(name)
    assert refused.value.case == "invalid-request"


@pytest.mark.parametrize(
    "header",
    [
        ("X\r\nHost", "a"),
        ("X", "a\nb"),
        ("X", "a\r"),
        ("X", "a\x00"),
        ("X", "ä"),
        ("X ", "a"),
        ("", "a"),
        ("X:", "a"),
        ("Host", "other.example"),
        ("X", "a" * 70_000),
    ],
)
def test_abi_18_headers_that_inject_are_refused(header: tuple[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        check_headers([header], HERE, no_secret)
    assert refused.value.case == "invalid-request"


def test_the_limits_and_the_redirects_that_are_followed() -> None:
    assert (MAX_HEADERS, MAX_HEADER_BYTES, MAX_REDIRECTS) == (128, 65_536, 10)
    assert {301, 302, 303, 307, 308} == REDIRECTS


@pytest.mark.parametrize("name", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_a_known_method_is_written_in_capitals_and_any_other_as_it_is(name: str) -> None:
    assert check_method(name.lower()) == name
    assert check_method("propfind") == "propfind"
    assert check_method("G" * 64) == "G" * 64


def test_names_and_values_have_64_kib_together() -> None:
    whole = ("X-A", "v" * 30_000), ("X-B", "v" * (65_536 - 30_006))
    assert check_headers(whole, HERE, no_secret)[0] == whole
    with pytest.raises(Refused):
        check_headers((*whole, ("Y", "")), HERE, no_secret)


@pytest.mark.parametrize(
    "name",
    ["Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection", "TE", "Trailer",
     "Transfer-Encoding", "Upgrade"],
)  # fmt: skip
def test_a_header_of_the_connection_is_not_the_guests(name: str) -> None:
    assert check_headers([(name, "x"), ("X", "y")], HERE, no_secret) == ((("X", "y"),), frozenset())


def test_framing_is_the_hosts_own() -> None:
    asked = [
        ("Host", "A.example"),
        ("Content-Length", "5"),
        ("Transfer-Encoding", "chunked"),
        ("Connection", "x"),
        ("X-A", "1"),
        ("X-A", "2"),
    ]
    assert check_headers(asked, HERE, no_secret) == ((("X-A", "1"), ("X-A", "2")), frozenset())


def test_there_are_no_more_headers_than_128() -> None:
    check_headers([("X", "")] * 128, HERE, no_secret)
    with pytest.raises(Refused):
        check_headers([("X", "")] * 129, HERE, no_secret)


def test_a_secret_stands_where_its_name_was_and_its_header_is_private() -> None:
    sent = check_headers([("Authorization", "Bearer {{secret:KEY}}!"), ("X", "y")], HERE, {"KEY": "k1"}.get)
    assert sent == ((("Authorization", "Bearer k1!"), ("X", "y")), frozenset({"authorization"}))


def test_the_header_of_a_secret_that_is_not_set_is_left_out() -> None:
    assert check_headers([("X-Key", "{{secret:KEY}}")], HERE, {}.get) == ((), frozenset())
    rest = [("X-Key", "{{secret:KEY}}"), ("Y", "z")]
    assert check_headers(rest, HERE, {}.get) == ((("Y", "z"),), frozenset())


def test_what_only_looks_like_a_placeholder_once_it_is_filled_is_none() -> None:
    written = "{{sec{{secret:A}}ret:x{{secret:A}}"
    assert check_headers([("X", written)], HERE, {"A": "-"}.get)[0] == (("X", "{{sec-ret:x-"),)


def test_of_what_is_not_valid_the_start_is_shown() -> None:
    with pytest.raises(Refused) as refused:
        check_headers([("é" * 65, "")], HERE, no_secret)
    assert refused.value.why == f"the header '{'é' * 64}' is not valid"
    with pytest.raises(Refused) as refused:
        check_method("é" * 41)
    assert refused.value.why == f"the method '{'é' * 40}' cannot be used"


def test_a_secret_that_the_capsule_has_not_declared_is_denied() -> None:
    with pytest.raises(Refused) as refused:
        check_headers([("X", "{{secret:OTHER}}")], HERE, no_secret)
    assert refused.value.case == "capability-denied"


@pytest.mark.parametrize(
    "value",
    [
        "{{secret:}}",
        "{{secret:A",
        "{{secret:A B}}",
        "{{secret:A}}{{secret:1}}",
        "{{secret:1}}{{secret:A}}",
        "{{secret:A}}{{secret:1}}{{secret:A}}",
    ],
)
def test_a_placeholder_that_is_malformed_is_refused(value: str) -> None:
    with pytest.raises(Refused) as refused:
        check_headers([("X", value)], HERE, {"A": "a"}.get)
    assert refused.value.case == "invalid-request"


def test_a_secret_cannot_inject_a_header_and_is_not_named_in_the_refusal() -> None:
    with pytest.raises(Refused) as refused:
        check_headers([("X", "{{secret:A}}")], HERE, {"A": "v\r\nHost: b"}.get)
    assert "v\r" not in refused.value.why
    assert refused.value.case == "invalid-request"


def test_a_secret_that_looks_like_a_placeholder_is_taken_as_it_is() -> None:
    sent, _ = check_headers([("X", "{{secret:A}}")], HERE, {"A": "{{secret:B}}"}.get)
    assert sent == (("X", "{{secret:B}}"),)


HEADERS = (
    ("Authorization", "a"),
    ("Cookie", "b"),
    ("Proxy-Authorization", "c"),
    ("X-Key", "secret"),
    ("Content-Type", "text/plain"),
    ("Accept", "*/*"),
)


def sent(method: str) -> HttpRequest:
    return HttpRequest(method=method, url=HERE, headers=HEADERS, body=b"body", private=frozenset({"x-key"}))


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [
        ("POST", 301, "GET"),
        ("POST", 302, "GET"),
        ("POST", 303, "GET"),
        ("PUT", 303, "GET"),
        ("HEAD", 303, "HEAD"),
        ("HEAD", 301, "HEAD"),
        ("GET", 302, "GET"),
        ("POST", 307, "POST"),
        ("DELETE", 308, "DELETE"),
    ],
)
def test_the_method_after_a_redirect(method: str, status: int, then: str) -> None:
    moved = sent(method).moved_to(HERE, status)
    assert moved.method == then
    is_kept = then == method
    assert (moved.body, dict(moved.headers).get("Content-Type")) == (
        (b"body", "text/plain") if is_kept and (method, status) != ("GET", 303) else (None, None)
    )


@pytest.mark.parametrize("target", ["https://b.example/", "https://a.example:444/", "http://a.example/"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_abi_17_credentials_are_dropped_on_every_change_of_origin(target: str, status: int) -> None:
    moved = sent("POST").moved_to(url(target), status)
    assert {name for name, _ in moved.headers} <= {"Accept", "Content-Type"}
    assert moved.private == frozenset()


@pytest.mark.parametrize(
    "name", ["Content-Type", "Content-Encoding", "Content-Language", "Content-Location", "Digest"]
)
def test_what_describes_a_body_goes_with_it(name: str) -> None:
    asked = HttpRequest(method="POST", url=HERE, headers=((name, "x"), ("Accept", "*/*")), body=b"body")
    assert asked.moved_to(HERE, 303).headers == (("Accept", "*/*"),)
    assert asked.moved_to(HERE, 307).headers == asked.headers


def test_abi_17_credentials_stay_within_an_origin() -> None:
    assert sent("GET").moved_to(url("https://a.example:443/y"), 302).headers == HEADERS


@pytest.mark.parametrize("algorithm", ["sha256", "sha384", "sha512"])
def test_an_integrity_is_read(algorithm: str) -> None:
    digest = hashlib.new(algorithm, b"body").digest()
    text = f"{algorithm}-{base64.b64encode(digest).decode()}"
    assert parse_integrity(text) == Integrity(algorithm=algorithm, digest=digest)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sha256",
        "sha256-",
        "md5-AAAA",
        "sha256-é",
        "sha256-AAAA",
        "sha256-!",
        "SHA256-x",
        f"sha256-!{'A' * 43}=",
    ],
)
def test_what_is_no_integrity_is_refused(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_integrity(text)
    assert refused.value.case == "invalid-request"


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=4))
def test_no_header_that_is_sent_holds_a_line_end(headers: list[tuple[str, str]]) -> None:
    try:
        kept, _ = check_headers(headers, HERE, no_secret)
    except Refused:
        return
    assert all(character not in name + value for name, value in kept for character in "\r\n\0")
