"""The table of blocked ranges, row by row, and the forms that hide an address in another."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aos_runtime.policy.addresses import (
    BLOCKED,
    CARRIER,
    LINK_LOCAL,
    LOOPBACK,
    METADATA,
    MULTICAST,
    PRIVATE,
    RESERVED,
    blocked_reason,
)

ROWS = {
    "0.0.0.0": LOOPBACK,
    "10.1.2.3": PRIVATE,
    "100.64.0.1": CARRIER,
    "100.100.100.200": CARRIER,
    "127.0.0.1": LOOPBACK,
    "127.255.255.254": LOOPBACK,
    "168.63.129.16": METADATA,
    "169.254.169.254": LINK_LOCAL,
    "172.16.0.1": PRIVATE,
    "172.31.255.255": PRIVATE,
    "192.0.0.1": RESERVED,
    "192.0.2.7": RESERVED,
    "192.88.99.1": RESERVED,
    "192.168.1.1": PRIVATE,
    "198.18.0.1": RESERVED,
    "198.51.100.1": RESERVED,
    "203.0.113.1": RESERVED,
    "224.0.0.1": MULTICAST,
    "255.255.255.255": RESERVED,
    "::": LOOPBACK,
    "::1": LOOPBACK,
    "64:ff9b:1::1": PRIVATE,
    "100::1": RESERVED,
    "100:0:0:1::1": RESERVED,
    "2001:2::1": RESERVED,
    "2001:10::1": RESERVED,
    "2001:20::1": RESERVED,
    "2001:db8::1": RESERVED,
    "3fff::1": RESERVED,
    "5f00::1": RESERVED,
    "fd00:ec2::254": PRIVATE,
    "fe80::1": LINK_LOCAL,
    "fe80::1%eth0": LINK_LOCAL,
    "2606:4700::1%eth0": LINK_LOCAL,
    "fec0::1": PRIVATE,
    "ff02::1": MULTICAST,
}


def test_every_reason_says_something() -> None:
    assert all({LOOPBACK, PRIVATE, LINK_LOCAL, METADATA, CARRIER, MULTICAST, RESERVED})
    assert len({LOOPBACK, PRIVATE, LINK_LOCAL, METADATA, CARRIER, MULTICAST, RESERVED}) == 7


@pytest.mark.parametrize(("text", "reason"), ROWS.items())
def test_sec_08_special_ranges_are_refused(text: str, reason: str) -> None:
    assert blocked_reason(ip_address(text)) == reason


def test_sec_08_every_row_of_the_table_has_a_test() -> None:
    tried = [ip_address(text.partition("%")[0]) for text in ROWS]
    untried = [n for n, _ in BLOCKED if not any(a.version == n.version and a in n for a in tried)]
    assert untried == []


@pytest.mark.parametrize(
    "text",
    [
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:169.254.169.254",
        "::ffff:0:10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "fec0::1",
        "::127.0.0.1",
        "2001:0:808:808::f5ff:fffe",
        "2001:0:a00:1::f7f7:f7f7",
        "2606:4700::5efe:10.0.0.1",
        "2606:4700::200:5efe:127.0.0.1",
    ],
)
def test_sec_01_and_02_an_address_in_an_address_is_refused(text: str) -> None:
    assert blocked_reason(ip_address(text)) is not None


@pytest.mark.parametrize(
    "text",
    [
        "8.8.8.8",
        "93.184.216.34",
        "172.32.0.1",
        "100.128.0.1",
        "64:ff9b::808:808",
        "2002:808:808::",
        "::ffff:8.8.8.8",
        "2606:4700::1111",
    ],
)
def test_sec_02_addresses_of_the_internet_are_open(text: str) -> None:
    assert blocked_reason(ip_address(text)) is None


EDGES = {
    "0.0.0.0/8": (None, "1.0.0.0"),
    "10.0.0.0/8": ("9.255.255.255", "11.0.0.0"),
    "100.64.0.0/10": ("100.63.255.255", "100.128.0.0"),
    "127.0.0.0/8": ("126.255.255.255", "128.0.0.0"),
    "168.63.129.16/32": ("168.63.129.15", "168.63.129.17"),
    "169.254.0.0/16": ("169.253.255.255", "169.255.0.0"),
    "172.16.0.0/12": ("172.15.255.255", "172.32.0.0"),
    "192.0.0.0/24": ("191.255.255.255", "192.0.1.0"),
    "192.0.2.0/24": ("192.0.1.255", "192.0.3.0"),
    "192.88.99.0/24": ("192.88.98.255", "192.88.100.0"),
    "192.168.0.0/16": ("192.167.255.255", "192.169.0.0"),
    "198.18.0.0/15": ("198.17.255.255", "198.20.0.0"),
    "198.51.100.0/24": ("198.51.99.255", "198.51.101.0"),
    "203.0.113.0/24": ("203.0.112.255", "203.0.114.0"),
    "224.0.0.0/3": ("223.255.255.255", None),
    "64:ff9b:1::/48": ("64:ff9b:0:ffff::", "64:ff9b:2::"),
    "100::/63": ("ff:ffff::", "100:0:0:2::"),
    "2001:2::/48": ("2001:1:ffff::", "2001:2:1::"),
    "2001:10::/28": ("2001:f:ffff::", None),
    "2001:20::/28": (None, "2001:30::"),
    "2001:db8::/32": ("2001:db7:ffff::", "2001:db9::"),
    "3fff::/20": ("3ffe:ffff::", "3fff:1000::"),
    "5f00::/16": ("5eff:ffff::", "5f01::"),
    "fc00::/7": ("fbff:ffff::", "fe00::"),
    "fe80::/9": ("fe7f:ffff::", None),
    "ff00::/8": (None, None),
}
"""Neighbouring ranges as one, and what lies before and after it on the internet (IANA's registries)."""


@pytest.mark.parametrize(("text", "neighbours"), EDGES.items())
def test_sec_08_a_range_ends_where_the_registry_says(
    text: str, neighbours: tuple[str | None, str | None]
) -> None:
    network = ip_network(text)
    assert blocked_reason(network[0]) is not None
    assert blocked_reason(network[-1]) is not None
    assert [blocked_reason(ip_address(one)) for one in neighbours if one is not None] == [
        None for one in neighbours if one is not None
    ]


@given(st.ip_addresses(v=4))
def test_every_ipv6_form_of_an_address_is_judged_as_the_address(address: IPv4Address) -> None:
    number, plain = int(address), blocked_reason(address)
    forms = (
        0xFFFF << 32 | number,
        0xFFFF << 48 | number,
        0x64_FF9B << 96 | number,
        0x2002 << 112 | number << 80,
        0x2001_0000_0808_0808 << 64 | number ^ 0xFFFF_FFFF,
        0x2606_4700 << 96 | 0x5EFE << 32 | number,
    )
    assert {blocked_reason(IPv6Address(form)) for form in forms} == {plain}
