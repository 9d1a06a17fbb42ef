"""What astrid:process tells of a child: records out of its state, and where a reader of a stream stands."""

from __future__ import annotations

import re
from time import monotonic

from blake3 import blake3

from aos_runtime.policy.process_rules import MAX_CHUNK_BYTES, ProcessCase, ProcessRefused
from aos_runtime.programs import Child, Exit, Kept
from aos_runtime.programs.usage import measure

_TOKEN = re.compile(r"([0-9a-f]{16})-([0-9]{1,18})-([0-9]{1,18})\Z")


def exit_info(child: Child) -> dict[str, object]:
    """An exit-info; of one that runs on, nothing is known."""
    return _exit(child.exit or Exit(None, None))


def process_result(child: Child) -> dict[str, object]:
    """A process-result, with the output that nobody had drained."""
    taken = child.drain()
    return {"stdout": taken.stdout, "stderr": taken.stderr, "exit": exit_info(child)}


def read_logs_result(child: Child) -> dict[str, object]:
    """A read-logs-result.  What it says of the end holds for the output beside it."""
    is_over = child.is_over
    taken = child.drain()
    return {
        "stdout": taken.stdout,
        "stderr": taken.stderr,
        "running": not is_over,
        "exit": exit_info(child) if is_over else None,
    }


def kill_result(child: Child, *, is_killed: bool) -> dict[str, object]:
    """A kill-result."""
    taken = child.drain()
    ended = None if child.exit is None else _exit(child.exit)
    return {"killed": is_killed, "exit": ended, "stdout": taken.stdout, "stderr": taken.stderr}


def log_chunk(kept: Kept, stream: str, token: str | None, max_bytes: int) -> dict[str, object]:
    """A log-chunk from a cursor on.  ProcessRefused INVALID_INPUT for a cursor of something else."""
    offset, lost = (None, 0) if token is None else _read_token(kept, stream, token)
    chunk, is_all = kept.child.since(stream, offset, min(max_bytes, MAX_CHUNK_BYTES))
    lost += chunk.dropped
    return {
        "data": chunk.data,
        "next": {"token": f"{_mark(kept, stream)}-{chunk.next_offset}-{lost}"},
        "bytes-dropped": lost,
        "drained-eof": is_all,
    }


def process_info(kept: Kept) -> dict[str, object]:
    """A process-info."""
    child, now = kept.child, monotonic()
    use = measure(child)
    ended = child.exit if child.is_over else None
    return {
        "id": kept.id,
        "label": kept.spawn.label,
        "command": kept.spawn.line,
        "os-pid": child.pid if child.exit is None else None,
        "phase": "exited" if child.is_over else "running",
        "exit": None if ended is None else _exit(ended),
        "age-ms": int((now - child.started_at) * 1000),
        "idle-ms": max(0, int((now - kept.touched_at) * 1000)),
        "buffered-bytes": child.stdout.unread + child.stderr.unread,
        "bytes-dropped": child.stdout.dropped + child.stderr.dropped,
        "stdin-open": child.is_input_open,
        "cpu-ms": use.cpu_ms,
        "mem-bytes-peak": use.peak_bytes,
    }


def _exit(ended: Exit) -> dict[str, object]:
    return {"exit-code": ended.code, "signal": ended.signal}


def _read_token(kept: Kept, stream: str, token: str) -> tuple[int, int]:
    found = _TOKEN.match(token)
    if found is None or found[1] != _mark(kept, stream):
        raise ProcessRefused(ProcessCase.INVALID_INPUT, "the cursor is none of this stream")
    return int(found[2]), int(found[3])


def _mark(kept: Kept, stream: str) -> str:
    """Tells the cursors of one stream from those of any other; says nothing about the id."""
    return blake3(f"{kept.id} {stream}".encode()).hexdigest()[:16]
