"""What it costs to move bytes between a guest and disk or net, over what Python itself needs for the same.

The plain side is the shortest Python that brings the same bytes to the same place and into memory of its
own: `open(...).read()` or `.write(...)` of a file as large, one `SELECT` or upsert of a row as large on a
connection with the same settings, `http.client` with the same server, and one copy of the bytes, which the
guest's memory is on the other side.  A call may take three times that and 20 us.  Batches of both sides
alternate and the fastest of each counts.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.payload_guest import CAS, FETCH, FILE, GET, KEY, READ, SEND, SET, WRITE, Caller, caller
from bench.payload_web import fetch, send

SIZES = {"1kb": 1_000, "100kb": 100_000, "1mb": 1_000_000, "9mb": 9_000_000}
OPERATIONS = {
    "fs_read": READ,
    "fs_write": WRITE,
    "kv_get": GET,
    "kv_set": SET,
    "http_get": FETCH,
    "http_put": SEND,
}
ALLOWANCE_S = 20e-6
SMALL_BYTES = 100
"""Of a value in the benchmark of the key-value store alone."""
BATCHES = 15
_STATUS = Path("/proc/self/status")
BATCH_S = 0.02
_UPSERT = "INSERT INTO kv VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_SWAP = "UPDATE kv SET value = ? WHERE key = ? AND value = ?"
_SELECT = "SELECT value FROM kv WHERE key = ?"
_FILL = "INSERT INTO kv VALUES (?, ?, ?, zeroblob(?))"
_TABLE = "CREATE TABLE kv (key BLOB PRIMARY KEY, value BLOB NOT NULL)"


class Plain:
    """Python's own way to the same bytes."""

    def __init__(self, root: Path, web_port: int) -> None:
        self._path = root / "plain"
        self._port = web_port
        self._database = sqlite3.connect(root / "plain.db", isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = NORMAL", _TABLE):
            self._database.execute(statement)

    def close(self) -> None:
        self._database.close()

    def operation(self, what: int, size: int) -> Callable[[], object]:
        """One operation; what it reads is there already."""
        path, run = self._path, self._database.execute
        memory, data = bytearray(size), [bytes(size), b"\1" * size]
        path.write_bytes(data[0])
        run(_UPSERT, (b"payload", data[0]))

        def read() -> None:
            with path.open("rb") as file:
                memory[:] = file.read()

        def write() -> None:
            data.reverse()
            with path.open("wb") as file:
                file.write(bytes(memoryview(data[0])))

        def get() -> None:
            memory[:] = run(_SELECT, (b"payload",)).fetchone()[0]

        def put() -> None:
            data.reverse()
            run(_UPSERT, (b"payload", bytes(memoryview(data[0]))))

        def swap() -> None:
            run(_SWAP, (bytes(memoryview(data[1])), b"payload", bytes(memoryview(data[0]))))
            data.reverse()

        def upload() -> None:
            send(self._port, data[0])

        return (read, write, get, put, swap, lambda: fetch(self._port, size, memory), upload)[what]


class Measured(NamedTuple):
    """Seconds of one host call and of the plain way."""

    host_s: float
    plain_s: float

    @property
    def over_allowance(self) -> float:
        """How many times the plain way the call takes beyond its allowance."""
        return max(0.0, self.host_s - ALLOWANCE_S) / self.plain_s


def measure_costs() -> dict[str, float]:
    """By `OPERATION_SIZE`: the host call less 20 us, over the plain way."""
    with tempfile.TemporaryDirectory(prefix="aos-bench-") as name, caller(Path(name)) as guest:
        plain = Plain(Path(name), guest.web_port)
        figures = {
            f"{operation}_{label}": _measure(guest, plain, what, size).over_allowance
            for label, size in SIZES.items()
            for operation, what in OPERATIONS.items()
        }
        plain.close()
    return figures


def measure_kv() -> dict[str, float]:
    """Get, set and cas of a small value by host call, over bare sqlite3."""
    with tempfile.TemporaryDirectory(prefix="aos-bench-") as name, caller(Path(name)) as guest:
        plain = Plain(Path(name), guest.web_port)
        figures = {}
        for operation, what in (("get", GET), ("set", SET), ("cas", CAS)):
            measured = _measure(guest, plain, what, SMALL_BYTES)
            figures[operation] = measured.host_s / measured.plain_s
        plain.close()
    return figures


def measure_memory() -> dict[str, float]:
    """By operation: by how much the process grows at its largest for one call of 9 MB, over the payload."""
    return {operation: _peak_of(what) / SIZES["9mb"] for operation, what in OPERATIONS.items()}


def _measure(guest: Caller, plain: Plain, what: int, size: int) -> Measured:
    _put_down(guest, size)
    bare = plain.operation(what, size)

    def host_batch(times: int) -> None:
        guest.call(what, times * 2, size)

    def plain_batch(times: int) -> None:
        for _ in range(times * 2):
            bare()

    batches = (host_batch, plain_batch)
    times = [_times_in(batch) for batch in batches]
    best = [float("inf"), float("inf")]
    for _ in range(BATCHES):
        for side, batch in enumerate(batches):
            best[side] = min(best[side], _seconds(batch, times[side]) / (2 * times[side]))
    return Measured(*best)


def _put_down(guest: Caller, size: int) -> None:
    """What a read finds: the bytes that the guest's memory holds, so that a cas finds them too."""
    (guest.folder / FILE).write_bytes(bytes(size))
    guest.call(SET, 2, size)


def _times_in(batch: Callable[[int], None]) -> int:
    times = 1
    while (spent := _seconds(batch, times)) < BATCH_S / 4:
        times *= 4
    return max(1, int(times * BATCH_S / spent))


def _seconds(batch: Callable[[int], None], times: int) -> float:
    start = time.perf_counter()
    batch(times)
    return time.perf_counter() - start


def _peak_of(what: int) -> int:
    """Bytes that a process of its own grows by, at its largest, for one call after a small one."""
    command = [sys.executable, "-m", "bench.payload", str(what)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return int(json.loads(ended.stdout))


def _grow(what: int) -> int:
    with tempfile.TemporaryDirectory(prefix="aos-bench-") as name, caller(Path(name)) as guest:
        small, large = SIZES["1kb"], SIZES["9mb"]
        guest.call(what, 0, small)
        with (guest.folder / FILE).open("wb") as file:
            file.truncate(large)
        guest.state.change(_FILL, (guest.space, KEY.encode(), large, large))
        _STATUS.with_name("clear_refs").write_text("5")  # the largest size from here on
        before = _status_bytes("VmRSS")
        guest.call(what, 1, large)
        return _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    print(_grow(int(sys.argv[1])))
