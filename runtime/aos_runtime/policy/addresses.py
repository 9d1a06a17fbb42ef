"""Which internet addresses a capsule never reaches: this machine, its networks, and what hides behind forms.

One explicit table, one row a range, because Python's own words for it (`is_private`, `is_global`) call
several ways to this machine global (case SEC-02).  An IPv6 address that carries an IPv4 one is what it
carries.  Source: host-abi.md 1.6; the IANA special-purpose registries; cases SEC-01, SEC-02, SEC-08.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

Address = IPv4Address | IPv6Address

LOOPBACK = "this machine"
PRIVATE = "a private network"
LINK_LOCAL = "the local link, where clouds keep the keys of their machines"
METADATA = "the metadata service of a cloud"
CARRIER = "addresses shared inside a provider's network"
MULTICAST = "multicast"
RESERVED = "reserved, nobody's on the internet"

BLOCKED: tuple[tuple[IPv4Network | IPv6Network, str], ...] = tuple(
    (ip_network(text), reason)
    for text, reason in (
        ("0.0.0.0/8", LOOPBACK),
        ("10.0.0.0/8", PRIVATE),
        ("100.64.0.0/10", CARRIER),
        ("127.0.0.0/8", LOOPBACK),
        ("168.63.129.16/32", METADATA),
        ("169.254.0.0/16", LINK_LOCAL),
        ("172.16.0.0/12", PRIVATE),
        ("192.0.0.0/24", RESERVED),
        ("192.0.2.0/24", RESERVED),
        ("192.88.99.0/24", RESERVED),
        ("192.168.0.0/16", PRIVATE),
        ("198.18.0.0/15", RESERVED),
        ("198.51.100.0/24", RESERVED),
        ("203.0.113.0/24", RESERVED),
        ("224.0.0.0/4", MULTICAST),
        ("240.0.0.0/4", RESERVED),
        ("::/128", LOOPBACK),
        ("::1/128", LOOPBACK),
        ("64:ff9b:1::/48", PRIVATE),
        ("100::/64", RESERVED),
        ("100:0:0:1::/64", RESERVED),
        ("2001:2::/48", RESERVED),
        ("2001:10::/28", RESERVED),
        ("2001:20::/28", RESERVED),
        ("2001:db8::/32", RESERVED),
        ("3fff::/20", RESERVED),
        ("5f00::/16", RESERVED),
        ("fc00::/7", PRIVATE),
        ("fe80::/10", LINK_LOCAL),
        ("fec0::/10", PRIVATE),
        ("ff00::/8", MULTICAST),
    )
)
"""Range and what is there, in words for a person."""

_CARRIERS: tuple[tuple[IPv6Network, int], ...] = tuple(
    (IPv6Network(text), shift)
    for text, shift in (
        ("::ffff:0:0/96", 0),  # mapped
        ("::ffff:0:0:0/96", 0),  # translated
        ("::/96", 0),  # compatible
        ("64:ff9b::/96", 0),  # NAT64
        ("2002::/16", 80),  # 6to4
        ("2001::/32", 64),  # Teredo: its server
    )
)
"""IPv6 ranges that carry an IPv4 address, and how far it stands from the right."""
_TEREDO = IPv6Network("2001::/32")
_ISATAP = frozenset({0x0000_5EFE, 0x0200_5EFE})
_WORD = 0xFFFF_FFFF


def blocked_reason(address: Address) -> str | None:
    """What lies at an address that no capsule may reach, None where it is the internet's."""
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        return LINK_LOCAL
    for network, reason in BLOCKED:
        if address.version == network.version and address in network:
            return reason
    if isinstance(address, IPv6Address):
        inner = map(blocked_reason, carried_addresses(address))
        return next((reason for reason in inner if reason is not None), None)
    return None


def carried_addresses(address: IPv6Address) -> tuple[IPv4Address, ...]:
    """The IPv4 addresses that an IPv6 address leads to."""
    number = int(address)
    carried = [number >> shift & _WORD for network, shift in _CARRIERS if address in network]
    if address in _TEREDO:
        carried.append(number & _WORD ^ _WORD)  # its client, written inverted
    if number >> 32 & _WORD in _ISATAP:
        carried.append(number & _WORD)
    return tuple(IPv4Address(one) for one in carried)
