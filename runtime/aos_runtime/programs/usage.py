"""What a running child uses, as the machine tells it: processor time and memory of its whole group."""

from __future__ import annotations

import os
from pathlib import Path

from aos_runtime.programs.child import Child, Use
from aos_runtime.store.children import group_members

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def measure(child: Child) -> Use:
    """What its group uses now, or had used when it ended; the peak is the highest that was looked at."""
    with child.changed:
        if child.exit is None:
            seen = [_read(pid) for pid in group_members(child.pid)]
            cpu_ms, now_bytes = sum(one.cpu_ms for one in seen), sum(one.peak_bytes for one in seen)
            child.use = Use(max(cpu_ms, child.use.cpu_ms), max(now_bytes, child.use.peak_bytes))
        return child.use


def _read(pid: int) -> Use:
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return Use(0, 0)
    fields = text.rpartition(")")[2].split()  # its name may hold anything
    return Use((int(fields[11]) + int(fields[12])) * 1000 // _TICKS, int(fields[21]) * _PAGE_BYTES)
