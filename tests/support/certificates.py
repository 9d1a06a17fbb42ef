"""A certificate authority in a page: Ed25519 keys and the few bytes of DER that a TLS test needs.

Nothing is installed and nothing is committed: keys are made when a test asks for them.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path

from nacl.signing import SigningKey

_ED25519 = bytes.fromhex("300506032b6570")
_COMMON_NAME = bytes.fromhex("0603550403")
_BASIC_CONSTRAINTS, _ALT_NAMES = bytes.fromhex("0603551d13"), bytes.fromhex("0603551d11")
_KEY_USAGE = bytes.fromhex("0603551d0f")
_SUBJECT_KEY, _AUTHORITY_KEY = bytes.fromhex("0603551d0e"), bytes.fromhex("0603551d23")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, in PEM."""

    pem: str
    key_pem: str


class Authority:
    """Signs certificates for hosts."""

    def __init__(self, name: str = "test authority") -> None:
        self._name = name
        self._key = SigningKey.generate()
        self.pem = _pem("CERTIFICATE", _certificate(name, name, self._key, self._key, _of_authority()))

    def issue(self, *hosts: str) -> Certificate:
        """A certificate for these names."""
        key = SigningKey.generate()
        names = b"".join(_tlv(0x82, host.encode()) for host in hosts)
        extension = _extension(_ALT_NAMES, _sequence(names))
        signed = _certificate(hosts[0], self._name, key, self._key, extension)
        seed = _tlv(4, _tlv(4, bytes(key)))
        return Certificate(
            _pem("CERTIFICATE", signed), _pem("PRIVATE KEY", _sequence(b"\x02\x01\x00" + _ED25519 + seed))
        )

    def client_context(self) -> ssl.SSLContext:
        """What trusts this authority and nobody else."""
        return ssl.create_default_context(cadata=self.pem)


def server_context(certificate: Certificate, folder: Path) -> ssl.SSLContext:
    """A server's side; the library reads a chain from files only."""
    path = folder / "server.pem"
    path.write_text(certificate.pem + certificate.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


def _certificate(subject: str, issuer: str, key: SigningKey, signer: SigningKey, extensions: bytes) -> bytes:
    dates = _sequence(_tlv(0x17, b"200101000000Z") + _tlv(0x17, b"491231235959Z"))
    serial = _tlv(2, b"\x01" + bytes(key.verify_key)[:8])
    body = _sequence(
        _tlv(0xA0, b"\x02\x01\x02")
        + serial
        + _ED25519
        + _name(issuer)
        + dates
        + _name(subject)
        + _sequence(_ED25519 + _tlv(3, b"\x00" + bytes(key.verify_key)))
        + _tlv(0xA3, _sequence(extensions + _of_keys(key, signer)))
    )
    return _sequence(body + _ED25519 + _tlv(3, b"\x00" + signer.sign(body).signature))


def _of_authority() -> bytes:
    may_sign = _extension(_BASIC_CONSTRAINTS, _sequence(b"\x01\x01\xff"), is_critical=True)
    return may_sign + _extension(_KEY_USAGE, b"\x03\x02\x01\x06", is_critical=True)


def _of_keys(key: SigningKey, signer: SigningKey) -> bytes:
    """Which key this is and which one signed it: since Python 3.13 a client asks for both."""
    own, signed_by = (bytes(one.verify_key)[:20] for one in (key, signer))
    own_id = _extension(_SUBJECT_KEY, _tlv(4, own))
    return own_id + _extension(_AUTHORITY_KEY, _sequence(_tlv(0x80, signed_by)))


def _extension(oid: bytes, value: bytes, *, is_critical: bool = False) -> bytes:
    return _sequence(oid + (b"\x01\x01\xff" if is_critical else b"") + _tlv(4, value))


def _name(text: str) -> bytes:
    return _sequence(_tlv(0x31, _sequence(_COMMON_NAME + _tlv(0x0C, text.encode()))))


def _sequence(content: bytes) -> bytes:
    return _tlv(0x30, content)


def _tlv(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 128:
        return bytes((tag, size)) + content
    digits = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 128 | len(digits))) + digits + content


def _pem(kind: str, data: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(data).decode()}-----END {kind}-----\n"
