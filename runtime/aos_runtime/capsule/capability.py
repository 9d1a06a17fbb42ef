"""What a capsule may ask of the machine: the set, its difference to what is held, and words for a person.

This room grants nothing and checks no call; enforcement is `host`, consent is the caller's.
Source: seed capsule-forge section 7, build-install.md 4.4, host-abi.md 1.14.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aos_runtime.errors import Corrupt

FLAG_NAMES = ("uplink", "allow_persistent", "allow_prompt_injection")
LIST_NAMES = ("net", "net_connect", "net_bind", "kv", "fs_read", "fs_write", "host_process", "identity")
CAPABILITY_NAMES = (*FLAG_NAMES, *LIST_NAMES)
IDENTITY_LEVELS = ("resolve", "link", "admin")
"""Identity operations, each of which implies those before it."""


MAX_ACCEPT_WORKERS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """The `[capabilities]` of a capsule.  Lists keep the manifest's order; `bind_workers` grants nothing."""

    uplink: bool = False
    allow_persistent: bool = False
    allow_prompt_injection: bool = False
    net: tuple[str, ...] = ()
    net_connect: tuple[str, ...] = ()
    net_bind: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    fs_read: tuple[str, ...] = ()
    fs_write: tuple[str, ...] = ()
    host_process: tuple[str, ...] = ()
    identity: tuple[str, ...] = ()
    bind_workers: int | None = None

    def merged(self, other: Capabilities) -> Capabilities:
        """The union; `other.bind_workers` wins where it is given."""
        flags = {name: self.flag(name) or other.flag(name) for name in FLAG_NAMES}
        lists = {name: tuple(dict.fromkeys(self.entries(name) + other.entries(name))) for name in LIST_NAMES}
        workers = self.bind_workers if other.bind_workers is None else other.bind_workers
        return _build(flags, lists, workers)

    def beyond(self, held: Capabilities) -> Capabilities:
        """What is asked here and not implied by `held`.  Holding more never leaves more over."""
        flags = {name: self.flag(name) and not held.flag(name) for name in FLAG_NAMES}
        lists = {name: _beyond(name, self.entries(name), held.entries(name)) for name in LIST_NAMES}
        return _build(flags, lists, None)

    def is_empty(self) -> bool:
        """Whether nothing at all is asked."""
        return not held_names(self)

    @property
    def accept_workers(self) -> int:
        """How many instances of a run loop take connections side by side: more than one where it listens on
        TCP, and never more than MAX_ACCEPT_WORKERS.
        """
        listens = any(not entry.startswith("unix:") for entry in self.net_bind)
        return max(1, min(self.bind_workers or 1, MAX_ACCEPT_WORKERS)) if listens else 1

    def flag(self, name: str) -> bool:
        """The yes-or-no capability `name`."""
        return bool(getattr(self, name))

    def entries(self, name: str) -> tuple[str, ...]:
        """The entries of the list capability `name`."""
        entries: tuple[str, ...] = getattr(self, name)
        return entries

    def to_json(self) -> dict[str, object]:
        """The key set of the wire and of receipts: all twelve keys, always."""
        values: dict[str, object] = {name: self.flag(name) for name in FLAG_NAMES}
        values.update({name: list(self.entries(name)) for name in LIST_NAMES})
        values["bind_workers"] = self.bind_workers
        return dict(sorted(values.items()))

    @classmethod
    def from_json(cls, value: object) -> Capabilities:
        """Read `to_json`'s form.  Absent keys are not held, unknown keys grant nothing.

        Corrupt `capabilities-damaged` where a known key has the wrong type.
        """
        if not isinstance(value, Mapping):
            raise _damaged("capabilities")
        flags = {name: _flag(name, value.get(name, False)) for name in FLAG_NAMES}
        lists = {name: _entries(name, value.get(name, ())) for name in LIST_NAMES}
        workers = value.get("bind_workers")
        if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 0):
            raise _damaged("bind_workers")
        return _build(flags, lists, workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One capability in words.  `scope` holds the manifest's entries; empty for a yes-or-no capability."""

    capability: str
    action: str
    scope: tuple[str, ...]
    impact: str


def held_names(capabilities: Capabilities) -> tuple[str, ...]:
    """The names of the capabilities that are asked for, flags first."""
    flags = tuple(name for name in FLAG_NAMES if capabilities.flag(name))
    return flags + tuple(name for name in LIST_NAMES if capabilities.entries(name))


def permissions(capabilities: Capabilities) -> tuple[Permission, ...]:
    """What a person reads before a yes: each capability that is asked for, its scope and what it can do."""
    return tuple(
        Permission(
            capability=name,
            action=_WORDS[name][0],
            scope=capabilities.entries(name) if name in LIST_NAMES else (),
            impact=_WORDS[name][1],
        )
        for name in held_names(capabilities)
    )


_WORDS: Mapping[str, tuple[str, str]] = {
    "uplink": (
        "Act as an uplink for other people's messages",
        "Runs without a time limit, publishes in the name of the users that it connects, and brings in what "
        "people on other platforms say as prompts in yours.",
    ),
    "allow_persistent": (
        "Leave programs running",
        "Programs that it starts on this machine can outlive the capsule.",
    ),
    "allow_prompt_injection": (
        "Change the system prompt",
        "What it returns can give the model instructions in your name.",
    ),
    "net": (
        "Send HTTP requests",
        "Can send what it has read to the listed hosts and bring their answers in.",
    ),
    "net_connect": (
        "Open TCP connections",
        "Can exchange any bytes with the listed hosts and ports.",
    ),
    "net_bind": (
        "Listen for connections",
        "Other programs can reach the capsule at the listed addresses.",
    ),
    "kv": (
        "Reserved storage scope",
        "Grants nothing today: every capsule has its own storage.",
    ),
    "fs_read": (
        "Read files and folders",
        "Sees everything below the listed places, keys and private data among it.",
    ),
    "fs_write": (
        "Change and delete files",
        "Can create, overwrite and delete everything below the listed places.",
    ),
    "host_process": (
        "Run programs on this machine",
        "The listed programs run with any arguments, change the workspace and reach the network; they are "
        "behind bubblewrap, unless the operator set `[process] unsandboxed`: then with your user's rights.",
    ),
    "identity": (
        "Work with user identities",
        "Can look up who somebody is, and at the levels `link` and `admin` change it.",
    ),
}


def _beyond(name: str, asked: tuple[str, ...], held: tuple[str, ...]) -> tuple[str, ...]:
    implies = _IMPLIES.get(name, _same)
    return tuple(entry for entry in asked if not any(entry == one or implies(one, entry) for one in held))


def _same(held: str, asked: str) -> bool:
    return held == asked


def _net_implies(held: str, asked: str) -> bool:
    return held == "*" or (bool(held) and asked.endswith(f".{held}"))


def _endpoint_implies(held: str, asked: str) -> bool:
    """`host:*` implies every port of the same host."""
    held_host, _, held_port = held.rpartition(":")
    return held_port == "*" and bool(held_host) and asked.rpartition(":")[0].lower() == held_host.lower()


def _path_implies(held: str, asked: str) -> bool:
    """A place implies what lies below it, whole components only; `..` is never reasoned about."""
    if ".." in asked.split("/"):
        return False
    if held == "*":
        return asked.startswith("cwd://")
    scheme, separator, below = held.partition("://")
    if separator and not below:
        return asked.startswith(f"{scheme}://")
    return bool(held) and asked.startswith(f"{held.rstrip('/')}/")


def _process_implies(held: str, asked: str) -> bool:
    return bool(held) and asked.startswith(f"{held} ")


def _identity_implies(held: str, asked: str) -> bool:
    return held in IDENTITY_LEVELS and asked in IDENTITY_LEVELS[: IDENTITY_LEVELS.index(held)]


_IMPLIES: Mapping[str, Callable[[str, str], bool]] = {
    "net": _net_implies,
    "net_connect": _endpoint_implies,
    "net_bind": _endpoint_implies,
    "fs_read": _path_implies,
    "fs_write": _path_implies,
    "host_process": _process_implies,
    "identity": _identity_implies,
}


def _build(
    flags: Mapping[str, bool], lists: Mapping[str, tuple[str, ...]], workers: int | None
) -> Capabilities:
    return Capabilities(**flags, **lists, bind_workers=workers)  # type: ignore[arg-type]  # keys are the fields


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _damaged(name)
    return value


def _entries(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise _damaged(name)
    entries = tuple(entry for entry in value if isinstance(entry, str))
    if len(entries) != len(value):
        raise _damaged(name)
    return entries


def _damaged(name: str) -> Corrupt:
    return Corrupt(
        "capabilities-damaged",
        f"the recorded value of `{name}` has the wrong type",
        hint="install the capsule again so that what it may do is recorded anew",
        capability=name,
    )
