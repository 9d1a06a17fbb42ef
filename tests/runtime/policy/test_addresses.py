"""The table of blocked ranges, row by row, and the forms that hide an address in another."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

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
