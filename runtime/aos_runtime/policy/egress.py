"""The airlock: which hosts a capsule may name, and which addresses it may reach behind them.

Two questions, in this order.  Does the manifest list the host (`net`), or host and port (`net_connect`,
`net_bind`)?  And is the address, known only once the name was looked up, one of the internet?  An address of
this machine or its networks is reached only where the operator has listed that very `host:port` for that very
capsule in `[security.capsule_local_egress]`; a manifest or a project can never widen it (SEC-09), and no
variable of the environment switches it off.  Nothing is looked up and nothing is connected here.
Source: host-abi.md 1.6 and 1.7, daemon-kernel.md 10, cases SEC-01 to SEC-09.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from aos_runtime.capsule.capability import Capabilities
from aos_runtime.policy.addresses import LINK_LOCAL, METADATA, Address, blocked_reason
from aos_runtime.policy.bounds import EGRESS, Bounds, unbound
from aos_runtime.policy.denial_line import quoted, render_denial
from aos_runtime.policy.hosts import Host, host_of, parse_endpoint, parse_host

CONFIG_KEY = "[security.capsule_local_egress]"
_NEVER_BY_NAME = frozenset({LINK_LOCAL, METADATA})
_T = TypeVar("_T")


class EgressCase(StrEnum):
    """The error cases of astrid:http and astrid:net that the airlock answers with."""

    DENIED = "capability-denied"
    REJECTED = "airlock-rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressDenial:
    """One refusal.  `allow` is the line that would allow it, None where none would."""

    operation: str
    target: str
    case: EgressCase
    rule: str
    allow: str | None = None

    @property
    def kind(self) -> tuple[str, str, str]:
        """What repeats are told by."""
        return self.operation, self.target, self.rule

    def render(self, *, repeated: int = 0) -> str:
        """One line for the capsule's log (`policy.denial_line`)."""
        named = ("target", self.target)
        return render_denial(
            self.operation, named, self.rule, case=self.case.value, allow=self.allow, repeated=repeated
        )


class Airlock:
    """What one capsule may reach.  `exemptions` are the operator's `host:port` entries for it, `bounds` those
    of its principal now.
    """

    __slots__ = ("_bind", "_bounds", "_capsule", "_connect", "_exempt", "_net", "_net_all", "has_unix")

    def __init__(
        self,
        capsule: str,
        capabilities: Capabilities,
        exemptions: Iterable[str] = (),
        bounds: Callable[[], Bounds] = unbound,
    ) -> None:
        self._capsule = capsule
        self._bounds = bounds
        self._net_all = "*" in capabilities.net
        self._net = tuple(_parsed(map(parse_host, capabilities.net)))
        self._connect = tuple(_parsed(map(parse_endpoint, capabilities.net_connect)))
        self._bind = tuple(_parsed(map(parse_endpoint, capabilities.net_bind)))
        self._exempt = tuple(_parsed(map(parse_endpoint, exemptions)))
        self.has_unix = any(entry.startswith("unix:") for entry in capabilities.net_bind)

    def check_request(self, host: Host, port: int, operation: str) -> EgressDenial | None:
        """Whether `net` lists the host of an HTTP request: `*`, the host, or a domain above it."""
        if self._net_all or any(entry.lists(host) for entry in self._net):
            return self._beyond(host, port, operation)
        return self._denied(operation, host.with_port(port), "net", host.text)

    def check_connect(self, host: Host, port: int, operation: str) -> EgressDenial | None:
        """Whether `net_connect` lists host and port; port 0, of a bare look-up, only `host:*` covers."""
        if any(entry.covers(host, port) for entry in self._connect):
            return self._beyond(host, port, operation)
        entry = host.with_port(port or "*")
        return self._denied(operation, host.with_port(port), "net_connect", entry)

    def check_bind(self, host: Host, port: int, operation: str) -> EgressDenial | None:
        """Whether `net_bind` lists host and port; only this machine's own addresses are bound."""
        target = host.with_port(port)
        if not is_loopback(host):
            return EgressDenial(
                operation=operation,
                target=target,
                case=EgressCase.REJECTED,
                rule="a capsule listens on this machine only: localhost, 127.0.0.0/8 or ::1",
            )
        if any(entry.covers(host, port) for entry in self._bind):
            return None
        return self._denied(operation, target, "net_bind", target)

    def check_datagrams(self, host: Host, port: int) -> EgressDenial | None:
        """Whether a UDP socket may be bound: any of this machine's own addresses with a port that the system
        chooses, for a capsule that may reach somebody; what `net_bind` lists, too, for a port of its choice.
        """
        operation = "udp-bind"
        if not self._connect:
            return self._denied(operation, host.with_port(port), "net_connect", "HOST:PORT")
        is_everywhere = host.address is not None and host.address.is_unspecified
        if port == 0 and (is_everywhere or is_loopback(host)):
            return None
        return self.check_bind(host, port, operation)

    def check_unix(self, operation: str) -> EgressDenial | None:
        """Whether `net_bind` has a `unix:` entry."""
        return None if self.has_unix else self._denied(operation, "unix", "net_bind", "unix:*")

    def vetted(
        self, host: Host, port: int, addresses: Sequence[Address], operation: str
    ) -> tuple[Address, ...] | EgressDenial:
        """Those of the addresses of a host that may be dialled; a denial where none may.

        One that may not is never dialled, whatever stands beside it (SEC-04).
        """
        good = tuple(one for one in addresses if self._is_open(host, port, one))
        if good or not addresses:
            return good
        return EgressDenial(
            operation=operation,
            target=host.with_port(port),
            case=EgressCase.REJECTED,
            rule=f"{addresses[0]} is {blocked_reason(addresses[0])}",
            allow=f"etc/config.toml: {CONFIG_KEY} {self._capsule} = [{quoted(host.with_port(port))}]",
        )

    def _is_open(self, host: Host, port: int, address: Address) -> bool:
        reason = blocked_reason(address)
        if reason is None or any(entry.covers(host_of(address), port) for entry in self._exempt):
            return True
        is_named = any(entry.covers(host, port) for entry in self._exempt)
        return is_named and reason not in _NEVER_BY_NAME

    def _beyond(self, host: Host, port: int, operation: str) -> EgressDenial | None:
        """A denial where the principal is held to hosts that this is none of."""
        bounds = self._bounds()
        if bounds.reaches(host, port):
            return None
        return EgressDenial(
            operation=operation,
            target=host.with_port(port),
            case=EgressCase.DENIED,
            rule=bounds.rule(EGRESS),
            allow=bounds.allow(EGRESS, host.with_port(port or "*")),
        )

    def _denied(self, operation: str, target: str, capability: str, entry: str) -> EgressDenial:
        return EgressDenial(
            operation=operation,
            target=target,
            case=EgressCase.DENIED,
            rule=f"no {capability} entry covers it",
            allow=f"[capabilities] {capability} = [{quoted(entry)}]",
        )


def is_loopback(host: Host) -> bool:
    """Whether a host is this machine by its spelling: nothing is looked up for it."""
    return host.text == "localhost" if host.address is None else host.address.is_loopback


def _parsed(values: Iterable[_T | None]) -> Iterable[_T]:
    return (value for value in values if value is not None)
