"""Everything that can go wrong on a network, as one kind of exception; factors make error cases of it."""

from __future__ import annotations

import errno
import os
import ssl
from enum import StrEnum


class Fault(StrEnum):
    """What went wrong."""

    DENIED = "capability-denied"
    """No row of the manifest lists it."""
    REJECTED = "airlock-rejected"
    """It leads to this machine or its networks."""
    INVALID = "invalid"
    SCHEME = "scheme"
    UNRESOLVED = "unresolved"
    REFUSED = "refused"
    RESET = "reset"
    TIMEOUT = "timeout"
    CUT = "cut"
    """The call that waits must come back."""
    CLOSED = "closed"
    TLS = "tls"
    CROWDED = "crowded"
    """As many as there may be are open."""
    IN_USE = "in-use"
    NOT_AVAILABLE = "not-available"
    NOT_TCP = "not-tcp"
    TOO_LARGE = "too-large"
    BOMB = "bomb"
    REDIRECT = "redirect"
    REDIRECTS = "redirects"
    INTEGRITY = "integrity"
    PROTOCOL = "protocol"
    OTHER = "other"


class NetworkFault(Exception):
    """A `fault`, and a sentence in our words that a guest may see."""

    def __init__(self, fault: Fault, text: str = "") -> None:
        super().__init__(text or fault.value)
        self.fault = fault
        self.text = text or fault.value


class NothingYet(Exception):
    """A read that may not wait found nothing."""


_BY_NUMBER = {
    errno.ECONNREFUSED: Fault.REFUSED,
    errno.ECONNRESET: Fault.RESET,
    errno.ECONNABORTED: Fault.RESET,
    errno.EPIPE: Fault.RESET,
    errno.ESHUTDOWN: Fault.CLOSED,
    errno.ENOTCONN: Fault.CLOSED,
    errno.EBADF: Fault.CLOSED,
    errno.ETIMEDOUT: Fault.TIMEOUT,
    errno.EADDRINUSE: Fault.IN_USE,
    errno.EADDRNOTAVAIL: Fault.NOT_AVAILABLE,
    errno.EHOSTUNREACH: Fault.REFUSED,
    errno.ENETUNREACH: Fault.REFUSED,
}


def fault_of(error: OSError) -> NetworkFault:
    """What an error of the system means."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NetworkFault(Fault.TLS, f"the certificate is not accepted: {error.verify_message}")
    if isinstance(error, ssl.SSLError):
        return NetworkFault(Fault.TLS, "the TLS handshake failed")
    number = error.errno or 0
    return NetworkFault(_BY_NUMBER.get(number, Fault.OTHER), os.strerror(number) if number else "it failed")
