"""One spelling of a host."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.hosts import Endpoint, Host, parse_address, parse_endpoint, parse_host


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("2130706433", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("0x", "0.0.0.0"),
        ("255.255.255.255", "255.255.255.255"),
        ("0xA9FEA9FE", "169.254.169.254"),
        ("１２７.０.０.１", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("１２７.０.０.１.", "127.0.0.1"),
        ("0X7F.1", "127.0.0.1"),
        ("00000000000000000000000000000000000000000000000177.1", "127.0.0.1"),
        ("①②⑦.1", "127.0.0.1"),
        ("8.8.8.8", "8.8.8.8"),
        ("[::ffff:127.0.0.1]", "::ffff:7f00:1"),
        ("[::ffff:7f00:1]", "::ffff:7f00:1"),
        ("::1", "::1"),
        ("[2606:4700:0:0::1111]", "2606:4700::1111"),
    ],
)
def test_sec_03_every_spelling_of_an_address_is_that_address(text: str, address: str) -> None:
    host = parse_host(text)
    assert host is not None
    assert host.address == ip_address(address)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Example.COM", "example.com"),
        ("localhost.", "localhost"),
        ("metadata.google.internal.", "metadata.google.internal"),
        ("LOCALHOST", "localhost"),
        ("ｌocalhost", "localhost"),
        ("München.de", "xn--mnchen-3ya.de"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("a-b.example", "a-b.example"),
    ],
)
def test_sec_06_names_are_compared_in_one_spelling(text: str, name: str) -> None:
    assert parse_host(text) == Host(text=name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "a..b",
        "localhost..",
        ".a",
        "a b",
        "a\tb",
        "a\x00b",
        "a%2eb",
        "a/b",
        "a@b",
        "a:80",
        "-a.com",
        "a-.com",
        "1.2.3.4.5",
        "256.1.1.1",
        "0.0.0.0.0",
        "0.0.0.0.1",
        "1.2.3.256",
        "4294967296",
        "08.1",
        "a.1",
        "[::1",
        "[127.0.0.1]",
        "a::1]",
        "1_0.1",
        "+1.1",
        "ａ_b.example",
        "[::1%lo]",
        "fe80::1%eth0",
        "x" * 64,
        "a." * 127 + "a",
        "٠.٠.٠.٠.٠",
        "xn\u200d.com",
        "9" * 600,
    ],
)
def test_sec_06_what_is_no_host_or_two_is_refused(text: str) -> None:
    assert parse_host(text) is None


def test_sec_06_a_label_has_63_characters_a_name_253_and_a_host_as_it_is_written_512() -> None:
    longest = "a." * 126 + "a"
    assert parse_host(longest) == parse_host(f"{longest}.") == Host(text=longest)
    assert parse_host(f"a{longest}") is None
    assert parse_host("x" * 63) == Host(text="x" * 63)
    ignored = "\u00ad"  # a soft hyphen says nothing in a name
    assert parse_host(ignored * 505 + "a.b.com") == Host(text="a.b.com")
    assert parse_host(ignored * 506 + "a.b.com") is None


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, 4]), st.sampled_from(["d", "o", "x"]))
def test_spellings_are_read_as_the_resolver_reads_them(number: int, parts: int, base: str) -> None:
    shifts = [24, 16, 8][: parts - 1]
    numbers = [number >> shift & 255 for shift in shifts] + [number & 256 ** (5 - parts) - 1]
    spell = {"d": str, "o": lambda n: f"0{n:o}", "x": lambda n: f"0x{n:x}"}[base]
    text = ".".join(map(spell, numbers))
    host = parse_host(text)
    assert host is not None
    assert host.address == IPv4Address(socket.inet_aton(text))


def test_an_address_is_read_as_a_resolver_gives_it_back() -> None:
    assert parse_address("127.0.0.1") == IPv4Address("127.0.0.1")
    assert parse_address("::1") == IPv6Address("::1")
    assert [parse_address(text) for text in ("127.1", "a.example", "", "[::1]")] == [None] * 4


@given(st.text(max_size=40))
def test_a_host_reads_as_itself_again(text: str) -> None:
    host = parse_host(text)
    if host is not None:
        assert parse_host(host.text) == host
        assert host.text.isascii()


@given(st.ip_addresses(), st.integers(0, 65535))
def test_an_endpoint_is_read_as_it_is_written(address: IPv4Address | IPv6Address, port: int) -> None:
    host = Host(text=str(address), address=address)
    assert parse_endpoint(host.with_port(port)) == Endpoint(host=host, port=port)


@pytest.mark.parametrize(
    "entry", ["", "a", "a:", ":80", "a:65536", "a:b", "a:80:90", "::1:80", "a:**", "a :1"]
)
def test_what_is_no_endpoint_is_refused(entry: str) -> None:
    assert parse_endpoint(entry) is None


def test_an_endpoint_without_a_port_covers_every_port_of_that_host_alone() -> None:
    endpoint = parse_endpoint("DB.example:*")
    assert endpoint is not None
    assert parse_endpoint("a:65535") == Endpoint(host=Host(text="a"), port=65_535)
    asked = [("db.example", 1), ("db.example", 65535), ("x.db.example", 1)]
    answers = [endpoint.covers(Host(text=name), port) for name, port in asked]
    assert answers == [True, True, False]
