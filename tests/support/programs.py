"""The programs of a test: one thread for its children, a guest's door to it, and all that was told of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aos_runtime.errors import AosError, Unavailable
from aos_runtime.home import Home
from aos_runtime.policy.process_rules import ProcessDenial
from aos_runtime.programs import Children, Owner, ProcessDoor, Registry
from aos_runtime.programs.sandbox import Sandbox
from aos_runtime.programs.walls import find_masks
from aos_runtime.store.children import ChildRecords

OWNER = Owner("default", "guest")
BUBBLEWRAP = shutil.which("bwrap")
WALLS = ("bare",) if BUBBLEWRAP is None else ("bare", "walled")
"""How programs are started here: without walls, and with them where the machine has some."""


class Programs:
    """`place` holds a home and a workspace."""

    def __init__(self, place: Path, walls: str = "bare") -> None:
        self.home = Home(place / "home")
        self.home.root.mkdir(parents=True, exist_ok=True)
        self.workspace = (place / "work").resolve()
        self.workspace.mkdir(exist_ok=True)
        self.records = ChildRecords(self.home)
        self.children = Children(self.records)
        self.events: list[tuple[str, str, Mapping[str, object]]] = []
        self.registry = Registry(self.children, lambda *event: self.events.append(event))
        self.admitted: list[Mapping[str, object]] = []
        self.notes: list[tuple[str, str, str | None]] = []
        self.denials: list[ProcessDenial] = []
        self.logged: list[tuple[str, str]] = []
        self.audit_fault: AosError | None = None
        self.slots = 8
        mark = self.records.mark()
        wall = BUBBLEWRAP if walls == "walled" else None
        masks = find_masks(self.home.root, os.environ)
        self.sandbox: Sandbox | Unavailable = Sandbox(masks=masks, wall=wall, mark=mark)

    def door(self, *entries: str, **changes: Any) -> ProcessDoor:
        """A guest's door with these rows of `host_process`; `changes` replaces fields."""
        door = ProcessDoor(
            owner=OWNER,
            entries=entries,
            may_persist=True,
            children=self.children,
            registry=self.registry,
            open_sandbox=self._open_sandbox,
            workspace=lambda: self.workspace,
            call_id=lambda: "call-1",
            caller=lambda: "default",
            slots=lambda: self.slots,
            allow_slots="aos quota set --agent default --processes N",
            admit=self._admit,
            note=lambda *note: self.notes.append(note),
            denied=self.denials.append,
            log=lambda level, message: self.logged.append((level, message)),
        )
        return replace(door, **changes)

    def close(self) -> None:
        """End everything; nothing may be left of it."""
        assert self.children.stop()
        assert self.children.live() == ()
        assert [path.name for path in self.home.children.iterdir()] == ["mark"]

    def _open_sandbox(self) -> Sandbox:
        if isinstance(self.sandbox, Unavailable):
            raise self.sandbox
        return self.sandbox

    def _admit(self, action: Mapping[str, object]) -> None:
        if self.audit_fault is not None:
            raise self.audit_fault
        self.admitted.append(action)


def request(*words: str, **changes: object) -> dict[str, object]:
    """A spawn-request of these words; `changes` replaces fields, `_` for `-` in their names."""
    asked: dict[str, object] = {
        "cmd": words[0],
        "args": list(words[1:]),
        "stdin": None,
        "env": [],
        "cwd": None,
        "limits": None,
        "file-injections": [],
        "label": None,
        "keep-stdin-open": None,
        "overflow": None,
        "log-ring-bytes": None,
        "max-lifetime-ms": None,
        "idle-timeout-ms": None,
        "exit-retention-ms": None,
    }
    return asked | {name.replace("_", "-"): value for name, value in changes.items()}


def descriptors() -> int:
    """How many this process holds."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is wanted


def zombies() -> list[int]:
    """Children of this process that ended and were not reaped."""
    return [pid for pid in _pids() if _is_zombie(pid)]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _is_zombie(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    state, parent = fields.rpartition(")")[2].split()[:2]
    return state == "Z" and int(parent) == os.getpid()
