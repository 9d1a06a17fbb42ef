"""The most that a principal's capsules may reach and start, whatever was agreed for each of them.

Two lists of its profile: `network.egress` and `process.allow`.  An absent key narrows nothing; a list, also
an empty one, allows what it names and no more.  They never widen what a capsule holds.  The published runtime
has both keys, and what it does with them is not known: this is ours (docs/adr/0022).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aos_runtime.policy.denial_line import quoted
from aos_runtime.policy.hosts import Endpoint, Host, parse_endpoint, parse_host

EGRESS, PROGRAMS = "network.egress", "process.allow"


class Bounds:
    """Those of one principal.  `unreadable` are entries of `network.egress` that name no host: they allow
    nothing.
    """

    __slots__ = ("_hosts", "_programs", "_reaches_all", "principal", "unreadable")

    def __init__(
        self, principal: str, egress: Sequence[str] | None = None, programs: Sequence[str] | None = None
    ) -> None:
        self.principal = principal
        self._reaches_all = egress is None or "*" in egress
        read = {entry: parse_endpoint(entry) or parse_host(entry) for entry in egress or () if entry != "*"}
        self._hosts = tuple(one for one in read.values() if one is not None)
        self.unreadable = tuple(entry for entry, one in read.items() if one is None)
        self._programs = programs

    def reaches(self, host: Host, port: int) -> bool:
        """Whether an entry names the host: `host:port` or `host:*`, or a host with all below it as in `net`.

        Port 0 is that of a bare look-up: any entry of the host covers it.
        """
        return self._reaches_all or any(_names(entry, host, port) for entry in self._hosts)

    def starts(self, command: str, arguments: Iterable[str]) -> bool:
        """Whether an entry names the command, word by word as in `host_process`."""
        return self._programs is None or covers_command(self._programs, command, arguments)

    def rule(self, key: str) -> str:
        """What is said of something that the list under `key` does not name."""
        return f"{key} of principal '{self.principal}' does not list it"

    def allow(self, key: str, entry: str) -> str:
        """The line that would allow it."""
        table, _, name = key.partition(".")
        return f"etc/profiles/{self.principal}.toml: [{table}] {name} = [{quoted(entry)}]"


UNBOUND = Bounds("nobody")


def unbound(_principal: str = "") -> Bounds:
    """Of what runs for no principal: nothing is narrowed."""
    return UNBOUND


def covers_command(entries: Iterable[str], command: str, arguments: Iterable[str]) -> bool:
    """Whether an entry lists the command: word by word, so that an entry of several words fixes the first
    arguments too.  Never by its file name, and never a path where a word is listed.
    """
    words = (command, *arguments)
    listed = ((entry, tuple(entry.split())) for entry in entries)
    return any(command == entry or (these and words[: len(these)] == these) for entry, these in listed)


def _names(entry: Endpoint | Host, host: Host, port: int) -> bool:
    if isinstance(entry, Endpoint):
        return entry.host == host and (port == 0 or entry.port in (None, port))
    return entry.lists(host)
