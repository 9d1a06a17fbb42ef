"""One spelling of a host for everything that compares hosts: what a guest names, and what a row lists.

A host is an address in any spelling that some resolver understands (`127.1`, `0x7f.1`, `2130706433`), or a
name in lower-case ASCII.  What two programs could read as two different hosts is no host at all.  Nothing is
looked up here.  Source: the WHATWG URL standard's host parser, cases SEC-03 and SEC-06.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address

from aos_runtime.policy.addresses import Address

MAX_HOST_CHARS = 512
MAX_NAME_BYTES = 253
MAX_PORT = 65_535

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(?:0[xX][0-9a-fA-F]*|[0-9]+)\Z")
_ENTRY = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]+):(?P<port>\*|[0-9]{1,5})\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """`text` is what is dialled, sent and compared: a lower-case name, or the plain spelling of `address`."""

    text: str
    address: Address | None = None

    def with_port(self, port: int | str) -> str:
        """`host:port`, an IPv6 address in brackets."""
        is_bracketed = self.address is not None and self.address.version == 6
        return f"[{self.text}]:{port}" if is_bracketed else f"{self.text}:{port}"

    def lists(self, other: Host) -> bool:
        """Whether this, as an entry, covers `other`: itself, and of a name what is below it."""
        if self == other:
            return True
        return self.address is None and other.address is None and other.text.endswith(f".{self.text}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An entry `host:port`; `port` None is `*`."""

    host: Host
    port: int | None

    def covers(self, host: Host, port: int) -> bool:
        return self.host == host and self.port in (None, port)


def parse_host(text: str) -> Host | None:
    """Read a host, an IPv6 address with or without brackets.  None where it is none, or two at once."""
    if len(text) > MAX_HOST_CHARS:
        return None
    if text.startswith("[") and text.endswith("]"):
        return _parse_ipv6(text[1:-1])
    if ":" in text:
        return _parse_ipv6(text)
    name = _to_ascii(text)
    if name is None:
        return None
    name = name.removesuffix(".")
    labels = name.split(".")
    if _NUMBER.match(labels[-1]):
        return _parse_ipv4(labels)
    if len(name) > MAX_NAME_BYTES or not all(map(_LABEL.match, labels)):
        return None
    return Host(text=name)


def parse_endpoint(entry: str) -> Endpoint | None:
    """Read an entry `host:port` or `host:*`."""
    found = _ENTRY.match(entry)
    if found is None:
        return None
    host = parse_host(found["host"])
    if host is None:
        return None
    port = None if found["port"] == "*" else int(found["port"])
    return None if port is not None and port > MAX_PORT else Endpoint(host=host, port=port)


def host_of(address: Address) -> Host:
    """The host that an address is."""
    return Host(text=str(address), address=address)


def _to_ascii(text: str) -> str | None:
    if text.isascii():
        return text.lower()
    import idna  # its tables are large, and most names are plain

    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except UnicodeError:  # of which idna's own is one
        return None


def _parse_ipv6(text: str) -> Host | None:
    if "%" in text:  # a zone names an interface of this machine
        return None
    try:
        return host_of(IPv6Address(text))
    except AddressValueError:
        return None


def _parse_ipv4(labels: list[str]) -> Host | None:
    """One to four numbers, decimal, octal or hexadecimal, the last one filling what is left."""
    if len(labels) > 4 or not all(map(_NUMBER.match, labels)):
        return None
    try:
        numbers = [_read_number(label) for label in labels]
    except ValueError:
        return None
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (5 - len(numbers)):
        return None
    value = sum(number << 8 * (3 - place) for place, number in enumerate(leading)) + last
    return host_of(IPv4Address(value))


def _read_number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def parse_address(text: str) -> Address | None:
    """An address as a resolver gives it back; None for anything else."""
    try:
        return ip_address(text)
    except ValueError:
        return None
