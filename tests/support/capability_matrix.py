"""Which capability opens which host function: one row a function, for every factor.

A row names the capabilities that a call needs, each with a narrow entry and a broad one, and two calls: one
that the narrow entries cover and one that only the broad ones do.  `UNGATED` are the functions that no
capability opens, with the reason.  A factor that is added must be in one of both (a test compares); its rows
go into a tuple of its own, its surroundings into `Room.context`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aos_runtime.bus.envelope import Envelope
from aos_runtime.capsule.capability import FLAG_NAMES, LIST_NAMES, Capabilities
from aos_runtime.home import Home
from aos_runtime.host import Case, Err
from aos_runtime.host.context import GuestContext
from aos_runtime.host.factors import FACTORS
from aos_runtime.kernel.guest import GuestPort
from aos_runtime.kernel.identities import GuestIdentities
from aos_runtime.kernel.uplinks import GuestUplinks
from aos_runtime.names import DEFAULT_PRINCIPAL
from aos_runtime.store.file_tree import has_room
from aos_runtime.store.identity import IdentityStore
from tests.support.guest_files import FileRoom
from tests.support.guests import (
    FS,
    HTTP,
    HTTP_OLD,
    IDENTITY,
    IO_ERROR,
    IPC,
    NET,
    POLL,
    PROCESS,
    PROCESS_OLD,
    REQUEST_CONTEXT,
    STREAMS,
    UPLINK,
    Recorder,
    envelope_from,
)
from tests.support.kernels import Bench
from tests.support.network import Net
from tests.support.programs import Programs, request

DENIED = "capability-denied"
KEYS = (*FLAG_NAMES, *LIST_NAMES)
Entries = tuple[str, ...] | bool
"""What a capability holds: its entries, or whether it is held."""

NET_NAMES = ("net", "net_connect", "net_bind")

BROAD: Mapping[str, Entries] = {
    **dict.fromkeys(FLAG_NAMES, True),
    "net": ("*",),
    "net_connect": ("a.test:*", "b.test:*"),
    "net_bind": ("unix:*", "127.0.0.1:*", "localhost:*"),
    "kv": ("*",),
    "fs_read": ("*", "home://", "/tmp", "/"),
    "fs_write": ("*", "home://", "/tmp", "/"),
    "host_process": ("sh", "bash"),
    "identity": ("admin",),
}
"""As much of each key as a manifest can ask for."""


class Room:
    """The surroundings of one call: real ports over the folders of a test."""

    def __init__(self, folder: Path) -> None:
        self.files = FileRoom(folder)
        for name in ("in", "out"):
            (self.files.workspace / name).mkdir()
            (self.files.workspace / name / "file").write_bytes(b"x")
            (self.files.workspace / name / "link").symlink_to("file")
            (self.files.workspace / name / "tree/below").mkdir(parents=True)
        self.bench = Bench()
        self.people = IdentityStore(Home(folder / "aos"))
        self.programs = Programs(folder)

    def context(self, held: Mapping[str, Entries]) -> GuestContext:
        """A guest that holds these capabilities and nothing else."""
        capabilities = Capabilities(**held)  # type: ignore[arg-type]
        port = GuestPort(self.bench.kernel, ("a.*",), "source", self._cause(), is_uplink=capabilities.uplink)
        context = Recorder().context(
            capabilities=capabilities,
            files=self.files.files(capabilities),
            network=Net().door(**{name: capabilities.entries(name) for name in NET_NAMES}),
            processes=self.programs.door(
                *capabilities.host_process, may_persist=capabilities.allow_persistent
            ),
            publish_as=port.publish_as,
            keeps_resources=True,
            identities=GuestIdentities(
                self.people, DEFAULT_PRINCIPAL, capabilities.identity, has_room, _hear, _hear, _hear
            ),
            uplinks=GuestUplinks((), port.hand_in, _hear, _hear, is_uplink=capabilities.uplink),
        )
        port.bind(context)
        return context

    def close(self) -> None:
        """End what was started."""
        self.programs.children.stop()

    def _cause(self) -> Envelope:
        return envelope_from("default")


def _hear(*_what: object) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One gated function.  `inside` is covered by the narrow entries, `outside` by the broad ones alone."""

    function: tuple[str, str]
    needs: Mapping[str, Entries]
    """The narrow entries, by capability.  A flag has no narrow form: it is True."""
    inside: tuple[object, ...]
    outside: tuple[object, ...] | None = None
    variant: str = ""
    passes: tuple[str | None, ...] = (None,)
    """How a call that the gate lets pass may end: an error case, None for ok."""

    @property
    def name(self) -> str:
        interface, function = self.function
        return f"{interface.partition('/')[0]}.{function}{self.variant}"

    def call(self, context: GuestContext, arguments: tuple[object, ...]) -> str | None:
        """The error case of one call, None where it was done."""
        answer: Any = FACTORS[self.function].run(context, *arguments)
        context.resources.clear()
        return str(answer.case) if isinstance(answer, Err) else None


def _fs(function: str, *needs: str, before: tuple[str, ...] = (), after: tuple[object, ...] = ()) -> Row:
    """A row whose paths lie in `cwd://in`, and outside in `cwd://out`."""
    paths = before or ("file",)
    return Row(
        function=(FS, function),
        needs=dict.fromkeys(needs, ("cwd://in",)),
        inside=(*(f"cwd://in/{path}" for path in paths), *after),
        outside=(*(f"cwd://out/{path}" for path in paths), *after),
        variant=f" {after[0]}" if function == "fs-open" else "",
    )


FILES = (
    _fs("fs-open", "fs_read", after=("read",)),
    _fs("fs-open", "fs_write", after=("write",)),
    _fs("fs-open", "fs_write", after=("append",)),
    _fs("fs-open", "fs_read", "fs_write", after=("read-write",)),
    _fs("fs-exists", "fs_read"),
    _fs("fs-mkdir", "fs_write", before=("new",)),
    _fs("fs-mkdir-all", "fs_write", before=("new/er",)),
    _fs("fs-readdir", "fs_read", before=("tree",)),
    _fs("fs-stat", "fs_read"),
    _fs("fs-stat-symlink", "fs_read", before=("link",)),
    _fs("fs-unlink", "fs_write"),
    _fs("read-file", "fs_read"),
    _fs("write-file", "fs_write", after=(b"y",)),
    _fs("fs-append", "fs_write", after=(b"y",)),
    _fs("fs-copy", "fs_read", "fs_write", before=("file", "copy")),
    _fs("fs-rename", "fs_write", before=("file", "moved")),
    _fs("fs-remove-dir-all", "fs_write", before=("tree",)),
    _fs("fs-canonicalize", "fs_read", before=("link",)),
    _fs("fs-read-link", "fs_read", before=("link",)),
    _fs("fs-hard-link", "fs_write", before=("file", "linked")),
)

BUS = (
    Row(
        function=(IPC, "publish-as"),
        needs={"uplink": True},
        inside=("a.b", "{}", "somebody"),
    ),
)

_GET = {"method": Case("get"), "headers": [], "body": None}
_NO_OPTIONS: dict[str, object] = {}


def _http(interface: str, function: str, *options: object) -> Row:
    """A row of a request; what the gate lets pass finds no address, since nothing is looked up for real."""
    return Row(
        function=(interface, function),
        needs={"net": ("a.test",)},
        inside=({"url": "http://a.test/", **_GET}, *options),
        outside=({"url": "http://b.test/", **_GET}, *options),
        passes=("dns-error",),
        variant=" 1.0" if interface == HTTP_OLD else "",
    )


WEB = (
    _http(HTTP_OLD, "http-request"),
    _http(HTTP_OLD, "http-stream-start"),
    _http(HTTP, "http-request"),
    _http(HTTP, "http-request-opts", _NO_OPTIONS),
    _http(HTTP, "http-stream-start"),
    _http(HTTP, "http-stream-start-opts", _NO_OPTIONS),
    _http(HTTP, "http-upload-start", _NO_OPTIONS),
)

SOCKETS = (
    Row(
        function=(NET, "connect-tcp"),
        needs={"net_connect": ("a.test:1",)},
        inside=("a.test", 1),
        outside=("b.test", 1),
        passes=("name-unresolvable",),
    ),
    Row(
        function=(NET, "lookup-host"),
        needs={"net_connect": ("a.test:*",)},
        inside=("a.test",),
        outside=("b.test",),
        passes=("name-unresolvable",),
    ),
    Row(
        function=(NET, "udp-bind"),
        needs={"net_connect": ("a.test:1",)},
        inside=("0.0.0.0", 0),
    ),
    Row(
        function=(NET, "bind-tcp"),
        needs={"net_bind": ("127.0.0.1:0",)},
        inside=("127.0.0.1", 0),
        outside=("localhost", 0),
    ),
    Row(
        function=(NET, "bind-unix"),
        needs={"net_bind": ("unix:*",)},
        inside=(),
        passes=("address-not-available",),  # no daemon, no place to listen
    ),
)

_SOMEBODY = {"platform": "discord", "platform-user-id": "7"}
_ADA = "0f8b4f6e-1111-4222-8333-444455556666"


def _identity(function: str, level: str, argument: object, *passes: str | None) -> Row:
    """A row of a level; nobody is known yet, so what the gate lets pass finds nobody."""
    return Row(function=(IDENTITY, function), needs={"identity": (level,)}, inside=(argument,), passes=passes)


PEOPLE = (
    _identity("identity-resolve", "resolve", _SOMEBODY, "link-not-found"),
    _identity("identity-unlink", "link", _SOMEBODY, "link-not-found"),
    _identity("identity-list-links", "link", _ADA, "user-not-found"),
    _identity(
        "identity-link", "link", {**_SOMEBODY, "astrid-user-id": _ADA, "method": "token"}, "user-not-found"
    ),
    _identity("identity-create-user", "admin", {"display-name": None}, None),
    Row(
        function=(UPLINK, "uplink-register"),
        needs={"uplink": True},
        inside=("bot", "discord", "chat"),
    ),
    Row(
        function=(UPLINK, "uplink-send"),
        needs={"uplink": True},
        inside=(_ADA, "7", "hello"),
        passes=("unknown-uplink",),
    ),
)


def _process(interface: str, function: str) -> Row:
    """A row of a program; an entry of two words covers it with that first argument alone."""
    return Row(
        function=(interface, function),
        needs={"host_process": ("sh -c",)},
        inside=(request("sh", "-c", "true"),),
        outside=(request("sh", "-ec", "true"),),
        variant=" 1.0" if interface == PROCESS_OLD else "",
    )


def _persistent(interface: str) -> Row:
    return Row(
        function=(interface, "spawn-persistent"),
        needs={"host_process": ("sh -c",), "allow_persistent": True},
        inside=(request("sh", "-c", "true"),),
        variant=" 1.0" if interface == PROCESS_OLD else "",
        passes=("persist-unsupported",),  # not without walls
    )


PROGRAMS = (
    _process(PROCESS, "spawn"),
    _process(PROCESS, "spawn-background"),
    _persistent(PROCESS),
    _process(PROCESS_OLD, "spawn"),
    _process(PROCESS_OLD, "spawn-background"),
    _persistent(PROCESS_OLD),
)

ROWS: tuple[Row, ...] = (*FILES, *BUS, *WEB, *SOCKETS, *PEOPLE, *PROGRAMS)

BY_HANDLE = "the handle was given by a function that is gated"
BY_TABLE = "gated by the manifest's [publish] and [subscribe] rows"
BY_ID = "the id was given by a function that is gated, and is good for that capsule and principal alone"
OWN = "a capsule's own keys, values, log and clock"
ASKS = "a person decides"
PROVED = "says who proved to be at the other end of a handle that a gated function gave"

UNGATED: Mapping[str, str] = {
    "astrid:fs/host@1.0.0 [method]file-handle.read-at": BY_HANDLE,
    "astrid:fs/host@1.0.0 [method]file-handle.write-at": BY_HANDLE,
    "astrid:fs/host@1.0.0 [method]file-handle.sync-data": BY_HANDLE,
    "astrid:fs/host@1.0.0 [method]file-handle.sync-all": BY_HANDLE,
    "astrid:fs/host@1.0.0 [method]file-handle.stat": BY_HANDLE,
    "astrid:fs/host@1.0.0 [method]file-handle.set-len": BY_HANDLE,
    **{
        " ".join(key): BY_HANDLE
        for key in FACTORS
        if key[0] in (HTTP_OLD, HTTP, NET, PROCESS_OLD, PROCESS) and key[1].startswith("[method]")
    },
    **{
        " ".join(key): BY_ID
        for key in FACTORS
        if key[0] in (PROCESS_OLD, PROCESS) and not key[1].startswith(("[method]", "spawn"))
    },
    "astrid:ipc/host@1.0.0 publish": BY_TABLE,
    "astrid:ipc/host@1.0.0 subscribe": BY_TABLE,
    "astrid:ipc/host@1.0.0 get-interceptor-bindings": OWN,
    "astrid:ipc/host@1.0.0 [method]subscription.poll": BY_HANDLE,
    "astrid:ipc/host@1.0.0 [method]subscription.recv": BY_HANDLE,
    "astrid:ipc/host@1.0.0 [method]subscription.subscribe-readiness": BY_HANDLE,
    "astrid:approval/host@1.0.0 request-approval": ASKS,
    "astrid:elicit/host@1.0.0 elicit": ASKS,
    "astrid:elicit/host@1.0.0 has-secret": OWN,
}
"""By interface and function; whole interfaces are in `UNGATED_INTERFACES`."""

UNGATED_INTERFACES: Mapping[str, str] = {
    "astrid:kv/host@1.0.0": OWN,
    "astrid:sys/host@1.0.0": OWN,
    IO_ERROR: BY_HANDLE,
    POLL: BY_HANDLE,
    STREAMS: BY_HANDLE,
    REQUEST_CONTEXT: PROVED,
}
