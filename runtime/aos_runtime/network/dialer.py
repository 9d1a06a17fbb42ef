"""Look-ups, connections and TLS for the whole process.

A name is looked up once for each connection; who asked checks the addresses and only those are dialled, so a
second answer of a resolver can change nothing (case SEC-04).  No proxy, no option of the environment.
"""

from __future__ import annotations

import functools
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from aos_runtime.network.faults import Fault, NetworkFault, fault_of
from aos_runtime.network.links import Link
from aos_runtime.network.waits import SLICE_S, Wait
from aos_runtime.policy.addresses import Address
from aos_runtime.policy.hosts import parse_address

MAX_LOOKUPS = 16
"""Threads that may be inside the system's resolver, which cannot be interrupted."""
MAX_ADDRESSES = 16
MIN_TRY_S = 2.0
"""What one address gets at least before the next one is tried."""

LookUp = Callable[[str], Iterable[str]]
"""The addresses of a name as text, blocking; OSError or UnicodeError where it has none."""
Connect = Callable[[Address, int, Wait], socket.socket]


class Dialer:
    """See the module's text.  The three ports are the system's own unless a test brings others."""

    def __init__(
        self,
        *,
        look_up: LookUp | None = None,
        connect: Connect | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._look_up = look_up or _look_up
        self._connect = connect or connect_to
        self._tls = tls or default_tls
        self._lookups = threading.BoundedSemaphore(MAX_LOOKUPS)

    def resolve(self, name: str, wait: Wait) -> tuple[Address, ...]:
        """The addresses of a name, asked for once.  NetworkFault UNRESOLVED, CROWDED, TIMEOUT or CUT."""
        if not self._lookups.acquire(timeout=0):
            raise NetworkFault(Fault.CROWDED, "too many names are being looked up")
        lookup = _Lookup(lambda: self._look_up(name), self._lookups.release)
        while not lookup.done.wait(min(SLICE_S, wait.left_s())):
            wait.check()
        if not lookup.addresses:
            raise NetworkFault(Fault.UNRESOLVED, f"{name} has no address")
        return lookup.addresses

    def dial(self, addresses: Sequence[Address], port: int, wait: Wait) -> Link:
        """Connect to the first of these addresses that answers, and to no other.

        NetworkFault of the last one tried.
        """
        fault = NetworkFault(Fault.UNRESOLVED, "there is no address")
        for place, address in enumerate(addresses):
            share_s = wait.left_s() / (len(addresses) - place)
            try:
                return Link(self._connect(address, port, wait.at_most(max(MIN_TRY_S, share_s))))
            except NetworkFault as failed:
                fault = failed
                wait.check()
        raise fault

    def secure(self, link: Link, server_name: str, wait: Wait) -> None:
        """TLS on a link, with the certificate checked against `server_name`."""
        link.start_tls(self._tls(), server_name, wait)


class _Lookup:
    """One question on a thread of its own, which outlives whoever gave up on it, and nothing else."""

    def __init__(self, ask: Callable[[], Iterable[str]], release: Callable[[], None]) -> None:
        self.addresses: tuple[Address, ...] = ()
        self.done = threading.Event()
        self._ask = ask
        self._release = release
        threading.Thread(target=self._run, name="aos-lookup", daemon=True).start()

    def _run(self) -> None:
        try:
            found = map(parse_address, self._ask())
            unique = dict.fromkeys(address for address in found if address is not None)
            self.addresses = tuple(unique)[:MAX_ADDRESSES]
        except (OSError, UnicodeError):
            self.addresses = ()
        finally:
            self._release()
            self.done.set()


def _look_up(name: str) -> Iterable[str]:
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return [str(row[4][0]) for row in found]


def connect_to(address: Address, port: int, wait: Wait) -> socket.socket:
    """A socket that is connected to that address.  NetworkFault where it cannot be."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        opened = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise fault_of(error) from error
    try:
        opened.setblocking(False)
        if opened.connect_ex((str(address), port)):
            wait.for_socket(opened.fileno(), select.POLLOUT)
        number = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, "")
        opened.getpeername()
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    except OSError as error:
        opened.close()
        raise fault_of(error) from error
    except NetworkFault:
        opened.close()
        raise


@functools.cache
def default_tls() -> ssl.SSLContext:
    """The system's trusted certificates, or, on a system that has none, those of certifi."""
    context = ssl.create_default_context()
    paths = ssl.get_default_verify_paths()
    folder = Path(paths.capath) if paths.capath else None
    if paths.cafile is None and (folder is None or not any(folder.iterdir())):
        import certifi

        context.load_verify_locations(certifi.where())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
